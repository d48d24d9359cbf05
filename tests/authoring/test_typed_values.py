"""What a workflow is handed is of the type that was declared: results of children, in every replay (F1, F14, F17)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

import bide
from bide.core.payloads import encode_payload
from bide.testing import world


@dataclass
class Bill:
    total: int
    note: str | None = None


class Invoice(msgspec.Struct):
    total: int


class Ticket(TypedDict):
    total: int


class Model(pydantic.BaseModel):
    total: int


VALUES: dict[Any, Any] = {
    Bill: Bill(7, "late"),
    Invoice: Invoice(7),
    Ticket: {"total": 7},
    Model: Model(total=7),
    list[Bill]: [Bill(7), Bill(8)],
    dict[str, Invoice]: {"a": Invoice(7)},
    Bill | None: None,
    Any: {"total": 7},
}
every_type = pytest.mark.parametrize("type_", VALUES)


def stored(value: Any) -> Any:
    return json.loads(encode_payload(value, max_bytes=1000))


@every_type
async def test_F14_invoke_gives_what_the_child_says_it_returns(store_url: str, type_: Any) -> None:
    """F1, F14: in the first turn as in every replay; by name it is the JSON that is stored."""
    app = bide.App()
    seen: list[Any] = []

    async def made(step: bide.Step) -> Any:
        return VALUES[type_]

    made.__annotations__["return"] = type_
    child = app.workflow("child")(made)

    @app.workflow("parent")
    async def parent(step: bide.Step) -> Any:
        seen.append(await step.invoke("typed", child))
        await step.sleep("night", "8h")
        return await step.invoke("plain", "child")

    async with world(app, store_url) as w:
        run = await w.start("parent")
        await w.advance("8h")
        assert await w.result(run.id) == stored(VALUES[type_])
        assert len(seen) > 1
        assert [(type(one), one) for one in seen] == [(type(VALUES[type_]), VALUES[type_])] * len(seen)


async def test_F17_a_childs_result_that_is_not_what_it_says_holds_the_parent(store_url: str) -> None:
    """F17: it goes on after a fix."""
    app = bide.App()

    @app.workflow("child")
    async def child(step: bide.Step) -> Bill:
        return {"total": "many"}  # type: ignore[return-value]  # as a child of an older version may have

    @app.workflow("parent")
    async def parent(step: bide.Step) -> Any:
        return await step.invoke("child", child)

    async with world(app, store_url) as w:
        run = await w.start("parent")
        found = await w.get(run.id)
        assert (found.status, found.held) == ("ready", "history_mismatch")
        [why] = [entry.data["reason"] for entry in await w.ledger(run.id) if entry.name == "run_held"]
        assert "which step 'child' invoked" in why
        assert "$.total" in why
        child.returns = dict[str, str]
        await w.retry(run.id)
        assert await w.result(run.id) == {"total": "many"}
