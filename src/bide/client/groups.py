"""Who is in which groups: asked of the app, before a command and outside of any transaction (W11)."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from bide.authoring.checks import shown
from bide.engine.runtime import Runtime
from bide.errors import BadInput


async def groups_of(runtime: Runtime, by: str | None) -> tuple[str, ...]:
    """The groups of a principal, asked for outside of any transaction (W11)."""
    ask = runtime.registry.groups
    if by is None or ask is None:
        return ()
    found = ask(by)
    if inspect.isawaitable(found):
        found = await found
    if found is None or isinstance(found, str) or not isinstance(found, Iterable):
        raise BadInput(f"the function of @app.groups gave {shown(found)} for {by!r}; it must give a list of groups")
    return tuple(str(group) for group in found)
