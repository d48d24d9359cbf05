"""Typed states: decoded before and encoded after each step (M7)."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest

import bide
from bide.testing import world
from tests.support.worlds import Ctx


class StructState(msgspec.Struct):
    order: int
    due: datetime
    paid: Decimal = Decimal("0")
    notes: list[str] = msgspec.field(default_factory=list)


class BriefState(StructState):
    notes: Annotated[list[str], msgspec.Meta(max_length=2)] = msgspec.field(default_factory=list)


@dataclasses.dataclass
class DataclassState:
    order: int
    due: datetime
    paid: Decimal = Decimal("0")
    notes: list[str] = dataclasses.field(default_factory=list)


class DictState(TypedDict):
    order: int
    due: datetime
    paid: Decimal
    notes: list[str]


class ModelState(pydantic.BaseModel):
    order: int
    due: datetime
    paid: Decimal = Decimal("0")
    notes: list[str] = []


GIVEN = {"order": 7, "due": "2030-01-02T03:04:05Z", "paid": "1.50", "notes": []}
DUE = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


class Attributes:
    """Changes its state in place, through a wait."""

    @bide.start
    def begin(self, ctx: Ctx) -> bide.Await:
        assert (ctx.state.order, ctx.state.due, ctx.state.paid) == (7, DUE, Decimal("1.50"))
        ctx.state.notes.append(type(ctx.state).__name__)
        return bide.Await("go", then="after")

    def after(self, ctx: Ctx) -> bide.Next:
        ctx.state.paid += Decimal("0.25")
        ctx.state.notes.append(type(ctx.state).__name__)
        return bide.Next("finish", ctx.state)

    def finish(self, ctx: Ctx) -> bide.Done:
        assert ctx.input == GIVEN
        return bide.Done(ctx.state)


class StructMachine(Attributes):
    state: StructState


class DataclassMachine(Attributes):
    state: DataclassState


class ModelMachine(Attributes):
    state: ModelState


class DictMachine:
    state: DictState

    @bide.start
    def begin(self, ctx: bide.Context[DictState]) -> bide.Await:
        assert (ctx.state["order"], ctx.state["due"], ctx.state["paid"]) == (7, DUE, Decimal("1.50"))
        ctx.state["notes"].append("DictState")
        return bide.Await("go", then="after")

    def after(self, ctx: bide.Context[DictState]) -> bide.Next:
        ctx.state["paid"] += Decimal("0.25")
        ctx.state["notes"].append("DictState")
        return bide.Next("finish", ctx.state)

    def finish(self, ctx: bide.Context[DictState]) -> bide.Done:
        return bide.Done(ctx.state)


MACHINES: dict[str, type] = {
    "StructState": StructMachine,
    "DataclassState": DataclassMachine,
    "DictState": DictMachine,
    "ModelState": ModelMachine,
}


@pytest.mark.parametrize("name", MACHINES)
async def test_M7_a_typed_state_is_decoded_before_and_encoded_after_each_step(store_url: str, name: str) -> None:
    app = bide.App()
    app.machine("typed")(MACHINES[name])
    async with world(app, store=store_url) as there:
        run = await there.start("typed", GIVEN)
        await there.signal(run.id, "go")
        assert await there.result(run.id) == {**GIVEN, "paid": "1.75", "notes": [name, name]}


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("StructState", StructState(7, DUE, Decimal("1.50"))),
        ("DataclassState", DataclassState(7, DUE, Decimal("1.50"))),
        ("DictState", DictState(order=7, due=DUE, paid=Decimal("1.50"), notes=[])),
        ("ModelState", ModelState(order=7, due=DUE, paid=Decimal("1.50"))),
    ],
)
async def test_M7_an_input_may_be_given_as_the_type_itself(store_url: str, name: str, given: Any) -> None:
    app = bide.App()
    app.machine("typed")(MACHINES[name])
    async with world(app, store=store_url) as there:
        run = await there.start("typed", given)
        assert run.info.input == GIVEN
        assert run.status == "waiting"


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("given", [None, {"order": "seven"}, [1], "text", {"due": "2030-01-02T03:04:05Z"}])
async def test_F16_an_input_that_does_not_fit_is_refused_and_starts_nothing(
    store_url: str, name: str, given: Any
) -> None:
    """F16, M3, contract §7: the input is the first state, so it must fit as the input of a workflow must."""
    app = bide.App()
    app.machine("typed")(MACHINES[name])
    async with world(app, store=store_url) as there:
        with pytest.raises(bide.BadInput, match=r"the input of 'typed' does not fit its type: at \$"):
            await there.start("typed", given)
        refused = await there.http().post("/v1/runs", json={"definition": "typed", "input": given})
        assert (refused.status_code, refused.json()["code"]) == (422, "bad_input")
        assert not await there.runs()


async def test_F16_a_child_whose_input_does_not_fit_fails_its_parent_at_once(store_url: str) -> None:
    app = bide.App()
    app.machine("typed")(StructMachine)

    @app.machine("parent")
    class Parent:
        def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([("typed", {"order": "seven"})], then="begin")

    async with world(app, store=store_url) as there:
        info = (await there.start("parent")).info
        assert info.error is not None
        assert (info.status, info.error.code, info.attempt) == ("failed", "BadInput", 0)


async def test_M7_a_stored_state_that_fits_its_type_no_more_is_an_error_of_the_step(store_url: str) -> None:
    app = bide.App()
    machine = app.machine("typed", retries=1)(StructMachine)
    async with world(app, store=store_url) as there:
        run = await there.start("typed", GIVEN)
        machine.__bide_definition__._state_type = list[int]  # type: ignore[attr-defined]  # a new release has it
        await there.signal(run.id, "go")
        assert ((await there.get(run.id)).status, (await there.get(run.id)).attempt) == ("ready", 1)
        await there.advance("1m")
        info = await there.get(run.id)
        assert info.status == "failed"
        assert info.error is not None
        assert (info.error.code, info.error.type, info.error.step) == ("StepFailed", "BadPayload", "after")
        assert info.error.message.startswith("at $")


@pytest.mark.parametrize("outcome", ["next", "await", "retry", "spawn"])
async def test_M7_a_state_that_a_step_returns_must_fit(store_url: str, outcome: str) -> None:
    app = bide.App()

    @app.machine("misfit", retries=0)
    class Misfit:
        state: StructState

        @bide.start
        def begin(self, ctx: Ctx) -> Any:
            bad = {"order": "seven", "due": ctx.state.due}
            return {
                "next": bide.Next("after", bad),
                "await": bide.Await("go", "after", bad),
                "retry": bide.Retry(bad),
                "spawn": bide.Spawn([], "after", bad),
            }[outcome]

        def after(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    async with world(app, store=store_url) as there:
        run = await there.start("misfit", GIVEN)
        assert run.status == "failed"
        assert run.info.error is not None
        assert (run.info.error.type, run.info.error.step) == ("BadPayload", "begin")
        assert "$.order" in run.info.error.message
        assert run.info.state == GIVEN


async def test_M7_a_misfit_goes_to_on_error_with_the_state_as_it_is_stored(store_url: str) -> None:
    app = bide.App()

    @app.machine("handled")
    class Handled:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("go", then="never")

        def never(self, ctx: Ctx) -> bide.Done:
            return bide.Done("never")

        def on_error(self, error: Exception, ctx: Ctx) -> bide.Done:
            return bide.Done([str(error), ctx.state])

    async with world(app, store=store_url) as there:
        run = await there.start("handled", {"order": "seven", "due": 1})
        Handled.__bide_definition__._state_type = StructState  # type: ignore[attr-defined]  # a new release has it
        await there.signal(run.id, "go")
        said, state = await there.result(run.id)
        assert said.startswith("at $.")
        assert state == {"order": "seven", "due": 1}


async def test_M7_a_misfit_leaves_the_worker_and_other_runs_alone(store_url: str) -> None:
    app = bide.App()
    app.machine("typed", retries=0)(StructMachine)
    async with world(app, store=store_url) as there:
        bad, good = await there.start("typed", {**GIVEN, "notes": ["a", "b"]}), await there.start("typed", GIVEN)
        StructMachine.__bide_definition__._state_type = BriefState  # type: ignore[attr-defined]  # a new release has it
        for run in (bad, good):
            await there.signal(run.id, "go")
        assert [(await there.get(run.id)).status for run in (bad, good)] == ["failed", "completed"]


async def test_M7_a_type_that_grew_since_the_run_parked_takes_its_defaults(store_url: str) -> None:
    app = bide.App()
    app.machine("typed")(StructMachine)
    async with world(app, store=store_url) as there:
        run = await there.start("typed", {"order": 7, "due": GIVEN["due"], "paid": "1.50"})
        assert run.info.state == {**GIVEN, "notes": ["StructState"]}


async def test_M7_the_type_is_inherited(store_url: str) -> None:
    app = bide.App()

    class Derived(StructMachine):
        pass

    app.machine("derived")(Derived)
    async with world(app, store=store_url) as there:
        assert (await there.start("derived", GIVEN)).info.state["notes"] == ["StructState"]


async def test_M7_other_annotations_of_the_class_are_not_looked_at(store_url: str) -> None:
    app = bide.App()

    @app.machine("annotated")
    class Annotated:
        client: NotImportedHere  # type: ignore[name-defined]  # noqa: F821
        state: StructState

        def begin(self, ctx: Ctx) -> bide.Done:
            return bide.Done(type(ctx.state).__name__)

    async with world(app, store=store_url) as there:
        assert await there.result((await there.start("annotated", GIVEN)).id) == "StructState"


def test_M7_a_type_that_cannot_be_found_is_said_at_registration() -> None:
    class Hidden(msgspec.Struct):
        order: int

    class Hides:
        state: Hidden

        def begin(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    with pytest.raises(bide.BadDefinition, match=r"declares state: Hidden, .* at the top level of the module"):
        bide.App().machine("hides")(Hides)


class Plain:
    """No text can be read as this."""


@pytest.mark.parametrize("type_", [Plain, "Plain", Plain | int, complex])
def test_H3_a_type_that_nothing_can_be_read_as_is_refused_at_registration(type_: Any) -> None:
    """S13, M7, H3: as the type of a signal it would make each delivery break, as that of a state each start."""
    app, paid = bide.App(), bide.Signal("paid", type_)

    class Waits:
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("paid", then="begin")

    class Keeps(Waits):
        pass

    async def waits(step: bide.Step) -> Any:
        return await step.receive("paid", paid, timeout="1d")

    Keeps.__annotations__ = {"state": type_}
    with pytest.raises(bide.BadDefinition, match=r"machine 'waits' cannot read its signal 'paid' as "):
        app.machine("waits", signals=[paid])(Waits)
    with pytest.raises(bide.BadDefinition, match=r"workflow 'waits' cannot read its signal 'paid' as "):
        app.workflow("waits", signals=[paid])(waits)
    if not isinstance(type_, str):  # an annotation as text is looked up
        with pytest.raises(bide.BadDefinition, match=r"machine 'keeps' cannot read its state as "):
            app.machine("keeps")(Keeps)
