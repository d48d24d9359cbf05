"""`keys` and `workspaces`: who may come in, and to where."""

from __future__ import annotations

import shlex
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bide.authoring.checks import MAX_NAME, is_name, shown
from bide.cli.options import StorePlace
from bide.cli.output import Cell, Column, age_cell
from bide.cli.session import StoreSession, Target, perform_on_store
from bide.cli.usage import AppOption, JsonOption, StoreOption, UsageProblem, read_duration
from bide.core.access import SCOPES, SECRET_BYTES, Key, Workspace, key_hash, new_key, unknown_scopes
from bide.core.durations import deadline_after
from bide.errors import KeyNotFound, WorkspaceExists, WorkspaceNotFound

if TYPE_CHECKING:
    from bide.engine.runtime import Runtime

ScopesOption = Annotated[
    list[str] | None, typer.Option("--scope", metavar="SCOPE", help=f"What it may do: {', '.join(SCOPES)}.")
]


async def make_key(
    runtime: Runtime,
    workspace: str,
    scopes: tuple[str, ...],
    *,
    name: str = "",
    expires: timedelta | None = None,
    rate: int | None = None,
) -> tuple[str, Key]:
    """Make a key and store its hash; the text of it is in nobody's hands but the caller's."""
    text = new_key(runtime.ports.random_bytes(SECRET_BYTES))
    now = await runtime.store.now()
    key = Key(
        id=f"key_{runtime.ports.random_bytes(8).hex()}",
        workspace=workspace,
        hash=key_hash(text),
        name=name,
        scopes=scopes,
        created_at=now,
        expires_at=deadline_after(now, expires) if expires is not None else None,
        rate=rate,
    )
    await runtime.store.add_key(key)
    return text, key


def create_key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for.")] = "",
    scope: ScopesOption = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="DURATION", help="How long it is good.", show_default=False)
    ] = None,
    rate: Annotated[
        int | None, typer.Option("--rate", metavar="N", min=1, help="Requests per second.", show_default=False)
    ] = None,
    *,
    at: StorePlace,
) -> int:
    """Make a key of a workspace and print it, this once.

    Without --scope it may do everything but answer in the name of others.
    """
    scopes = tuple(scope or [one for one in SCOPES if one != "interactions:answer_as"])
    wrong = unknown_scopes(scopes)
    if wrong:
        raise UsageProblem(f"--scope {wrong[0]!r}: give one of {', '.join(SCOPES)}", "bad_input")
    if name and not is_name(name):
        raise UsageProblem(f"NAME {shown(name)}: give at most {MAX_NAME} printable characters", "bad_input")
    time = read_duration(expires, "--expires")
    if time is not None and not time:
        raise UsageProblem(
            f"--expires {expires}: it would let nobody in; leave it out for a key that stays", "bad_input"
        )

    async def work(session: StoreSession) -> None:
        if at.workspace != "default" and at.workspace not in {one.name for one in await session.store.workspaces()}:
            raise WorkspaceNotFound(at.workspace)
        text, key = await make_key(session.runtime, at.workspace, scopes, name=name, expires=time, rate=rate)
        if session.out.as_json:
            session.out.value({"key": text, **_shown(key)})
            return
        session.out.line(text)
        session.out.note(f"{key.id} of workspace {at.workspace}; it is not shown again")

    return perform_on_store(at, work, creates=True)


def list_keys(
    *,
    at: StorePlace,
) -> int:
    """List the keys of a workspace; the keys themselves are not known."""

    async def work(session: StoreSession) -> None:
        keys = await session.store.keys(at.workspace)
        if session.out.as_json:
            session.out.value({"items": [_shown(key) for key in keys], "next_cursor": None})
            return
        now = await session.store.now()
        columns = [
            Column("id", whole=True),
            Column("name"),
            Column("state", whole=True),
            Column("last use", whole=True),
            Column("scopes"),
        ]
        session.out.table(columns, [_row(key, now) for key in keys])

    return perform_on_store(at, work)


def revoke_key(
    key: Annotated[str, typer.Argument(metavar="KEY_ID", help="The id of the key.")],
    *,
    at: StorePlace,
) -> int:
    """Revoke a key: from the next request on it is not let in."""

    async def work(session: StoreSession) -> None:
        known = {one.id for one in await session.store.keys(at.workspace)}
        if key not in known or not await session.store.revoke_key(key):
            raise KeyNotFound(key)
        if session.out.as_json:
            session.out.value({"id": key, "revoked": True})
        else:
            session.out.line(f"{key} is revoked")

    return perform_on_store(at, work)


def create_workspace(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.")],
    app: AppOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """Create a workspace: a tenant whose runs nobody else sees."""
    from bide.authoring.checks import check_text

    check_text(name, "workspace")

    async def work(session: StoreSession) -> None:
        made = Workspace(name=name, created_at=await session.store.now())
        if name == "default" or not await session.store.add_workspace(made):
            raise WorkspaceExists(name)
        if session.out.as_json:
            session.out.value({"name": name, "created_at": made.created_at})
        else:
            session.out.line(
                f"workspace {name} is there; give it a key: bide keys create --workspace {shlex.quote(name)}"
            )

    return perform_on_store(Target(app, store, "default", json), work, creates=True)


def list_workspaces(app: AppOption = None, store: StoreOption = None, json: JsonOption = False) -> int:
    """List the workspaces; `default` is always there."""

    async def work(session: StoreSession) -> None:
        names = sorted({"default", *(one.name for one in await session.store.workspaces())})
        if session.out.as_json:
            session.out.value({"items": [{"name": name} for name in names], "next_cursor": None})
            return
        for name in names:
            session.out.line(name)

    return perform_on_store(Target(app, store, "default", json), work)


def _shown(key: Key) -> dict[str, Any]:
    return {name: getattr(key, name) for name in Key.__struct_fields__ if name != "hash"}


def _row(key: Key, now: datetime) -> list[Cell]:
    state = "revoked" if key.revoked_at is not None else "good" if key.is_good(now) else "expired"
    used = age_cell(key.last_used_at, now) if key.last_used_at is not None else Cell("never", "dim")
    style = "green" if state == "good" else "red"
    return [Cell(key.id), Cell(key.name), Cell(state, style), used, Cell(" ".join(key.scopes), "dim")]
