"""Where machine files meet the kernel's waits: events, callbacks, people, and work that is started and left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bide.authoring.language.evaluating import as_text
from bide.authoring.language.matching import expression_of
from bide.authoring.language.tree import Field
from bide.core.durations import FOREVER

if TYPE_CHECKING:
    from bide.authoring.workflow import Step
    from bide.authoring.workflow.callbacks import Callback


def timeout_of(said: Any) -> Any:
    """No time said is no limit; `bide check` says so."""
    return FOREVER if said is None or said == "forever" else said


def _terms(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: options[name] for name in names if options.get(name) is not None}


async def person(step: Step, name: str, options: dict[str, Any]) -> Any:
    """A human task, answered under its channel (L3)."""
    terms = _terms(options, "channel", "description", "assignee", "group", "metadata")
    title = options.get("title") or name.replace("_", " ")
    form = options["schema"] if options["schema"] is not None else Any
    return await step.ask(name, title=title, form=form, timeout=options["timeout"], **terms)


async def callback(step: Step, name: str, options: dict[str, Any]) -> Callback[Any]:
    """A wait with an address of its own: `url` and `token` now, the answer when it is awaited (L3)."""
    terms = _terms(options, "channel", "title", "description", "metadata")
    returns = options["schema"] if options["schema"] is not None else Any
    return await step.callback(name, timeout=options["timeout"], returns=returns, **terms)


async def event(step: Step, name: str, options: dict[str, Any], fields: Sequence[Field] | None) -> Any:
    """The data of the first event that fits; one that does not is not for this wait, which goes on (L3)."""
    terms = _terms(options, "channel", "title", "description", "metadata")
    match = expression_of(options.get("match"), fields)
    came = await step.wait_for_event(
        name, event=as_text(options["event"]), match=match, timeout=options["timeout"], **terms
    )
    return came.data


async def emit(step: Step, name: str, event: str, data: Any, channel: Any) -> None:
    await step.emit(name, event, data, **({"channel": channel} if channel is not None else {}))


async def launch(step: Step, name: str, definition: str, input: Any) -> str:
    """Start it and let it go; the run's id."""
    return await step.launch(name, definition, input)
