"""The audit finds what mutants of the rules leave of items, units and interactions, on every store (D11, reliability
4.8): each forgets one thing that keeps a run from being stranded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

import bide
from bide.core import exchanges, streams
from bide.core.batch import Draft
from bide.core.moves import close_wait
from bide.core.records import Item, Run, Unit, Wait
from bide.engine.transport import Request, Sent
from bide.testing import world


class Provider:
    name = "provider"

    async def dispatch(self, requests: Sequence[Request]) -> Sequence[Sent]:
        raise AssertionError("a world sends nothing")


def an_app() -> bide.App:
    app = bide.App()
    pipeline = app.pipeline("pay").expand(range)
    pipeline.wait_external("ask", transport=Provider(), timeout="1h", max_pending=2)
    pipeline.map(lambda n: n + 1).collect(list)
    return app


Patch = pytest.MonkeyPatch
put_unit, put_item = Draft.put_unit, Draft.put_item


def uncounted(patch: Patch) -> None:
    """An answer is taken, and not counted."""

    def put(draft: Draft, unit: Unit) -> Unit:
        return put_unit(draft, replace(unit, received=0))

    patch.setattr(Draft, "put_unit", put)


def never_completed(patch: Patch) -> None:
    """The last answer does not complete its wait."""

    def close(draft: Draft, run: Run, wait: Wait, status: Any, cause: str, **changes: Any) -> Run:
        return run if status == "completed" else close_wait(draft, run, wait, status, cause, **changes)

    patch.setattr(exchanges, "close_wait", close)
    patch.setattr(streams, "close_wait", close)
    patch.setattr(streams.Stream, "_release", lambda self: None)


def never_due(patch: Patch) -> None:
    """An item whose answer came is not put before a worker."""

    def put(draft: Draft, item: Item) -> Item:
        return put_item(draft, replace(item, due_at=None))

    patch.setattr(Draft, "put_item", put)


def never_released(patch: Patch) -> None:
    """The run does not go on when its last item has come to its end."""
    patch.setattr(streams.Stream, "_release", lambda self: None)


def never_sent(patch: Patch) -> None:
    """The commit that opens interactions leaves nothing in the outbox."""
    patch.setattr(exchanges, "has_room", lambda terms, unit: False)


MUTANTS = [
    ("I13", "interactions, there are", uncounted),
    ("I13", "wait 1 is waiting with 3 of 3", never_completed),
    ("I4", "is ready, and nothing would move it", never_due),
    ("I4", "waits for items, and none is left", never_released),
    ("I12", "is pending, and nobody would send it", never_sent),
]


async def audited(store_url: str, patch: Patch, mutate: Callable[[Patch], None], found: list[Any]) -> None:
    """One run by the rules and one by the mutant; what the audit says of both."""
    async with world(an_app(), store_url) as there:
        whole = await there.start("pay", 3)
        for _ in range(2):
            for request in there.sent("provider"):
                await there.reply(request, 1)
        assert await there.result(whole.id) == [2, 2, 2]
        assert await there.runtime.store.audit() == []
        mutate(patch)
        broken = await there.start("pay", 3)
        for _ in range(2):
            for request in there.sent("provider")[3:]:
                await there.reply(request, 1)
        found.extend(await there.runtime.store.audit())
        assert {each.id for each in found} == {broken.id}
        patch.undo()


@pytest.mark.parametrize(("invariant", "says", "mutate"), MUTANTS, ids=[each[2].__name__ for each in MUTANTS])
async def test_the_audit_finds_what_a_mutant_leaves(
    store_url: str, monkeypatch: Patch, invariant: str, says: str, mutate: Callable[[Patch], None]
) -> None:
    found: list[Any] = []
    with pytest.raises(AssertionError, match="the store breaks its invariants"):  # a world asks at its end, too
        await audited(store_url, monkeypatch, mutate, found)
    assert any(each.invariant == invariant and says in each.detail for each in found), found
