"""Children: spawning, joining, timing out, cancelling (M6)."""

from __future__ import annotations

from typing import Any

import pytest

import bide
from bide.testing import world
from tests.support.worlds import Ctx, ledger_names

app = bide.App("children")


@app.machine("child", retries=0)
class ChildMachine:
    """Ends as its input says, at once or when it is told to."""

    @bide.start
    def begin(self, ctx: Ctx) -> Any:
        match ctx.input:
            case {"wait": _}:
                return bide.Await("go", then="finish")
            case {"stop": reason}:
                return bide.Stop(reason)
            case {"fail": message}:
                raise ValueError(message)
            case value:
                return bide.Done(value)

    def finish(self, ctx: Ctx) -> bide.Done:
        return bide.Done(ctx.awaited[0].payload)


def shown(children: Any) -> list[list[Any]]:
    return [[child.status, child.result, str(child.error) if child.error else None] for child in children]


@app.machine("parent")
class Parent:
    """Spawns a child for each item of its input and tells how they ended."""

    @bide.start
    def begin(self, ctx: Ctx) -> bide.Spawn:
        options = {"timeout": "1h", **ctx.input.get("options", {})}
        return bide.Spawn([("child", given) for given in ctx.input["children"]], then="joined", **options)

    def joined(self, ctx: Ctx) -> bide.Done:
        return bide.Done({"children": shown(ctx.children), "timed_out": ctx.timed_out})


WAIT: dict[str, Any] = {"wait": 1}


async def children_of(there: Any, run: bide.Run[Any]) -> list[bide.RunInfo]:
    started = [entry.data["id"] for entry in await there.ledger(run.id) if entry.name == "child_started"]
    return [await there.get(child) for child in started]


async def test_M6_a_parent_goes_on_when_every_child_is_final_with_results_in_order(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("parent", {"children": [WAIT, "second", WAIT]})
        first, second, third = await children_of(there, run)
        assert (run.status, second.status) == ("waiting", "completed")
        await there.signal(third.id, "go", "third")
        assert (await there.get(run.id)).status == "waiting"
        await there.signal(first.id, "go", "first")
        assert await there.result(run.id) == {
            "children": [["completed", "first", None], ["completed", "second", None], ["completed", "third", None]],
            "timed_out": False,
        }


async def test_M6_a_child_that_did_not_complete_is_final_too(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("parent", {"children": [{"fail": "broke"}, {"stop": "enough"}, WAIT, 4]})
        assert run.status == "waiting"
        await there.cancel((await children_of(there, run))[2].id, reason="not needed")
        assert (await there.result(run.id))["children"] == [
            ["failed", None, "StepFailed: broke"],
            ["stopped", None, "Stopped: enough"],
            ["cancelled", None, None],
            ["completed", 4, None],
        ]


async def test_M6_ctx_children_has_id_definition_status_result_and_error(store_url: str) -> None:
    own = bide.App("own")
    own.machine("child", retries=0)(ChildMachine)
    seen: list[bide.ChildResult] = []

    @own.machine("parent")
    class Spawns:
        @bide.start
        async def begin(self, ctx: Ctx) -> bide.Spawn:
            assert ctx.children == []
            return bide.Spawn([("child", 1), ("child", {"fail": "broke"})], then="joined")

        async def joined(self, ctx: Ctx) -> bide.Next:
            seen.extend(ctx.children)
            return bide.Next("after")

        async def after(self, ctx: Ctx) -> bide.Done:
            assert ctx.children == []  # they belong to the step that the join woke
            return bide.Done()

    async with world(own, store=store_url) as there:
        run = await there.start("parent")
        assert await there.result(run.id) is None
        ids = [child.id for child in await children_of(there, run)]
        assert [(await there.get(id)).parent_id for id in ids] == [run.id, run.id]
    assert [child.id for child in seen] == ids
    assert [child.definition for child in seen] == ["child", "child"]
    assert [child.status for child in seen] == ["completed", "failed"]
    assert (seen[0].result, seen[0].error) == (1, None)
    assert seen[1].error is not None
    assert (seen[1].error.code, seen[1].error.type, seen[1].error.step) == ("StepFailed", "ValueError", "begin")


async def test_M6_zero_children_go_on_at_once(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("parent", {"children": []})
        assert await there.result(run.id) == {"children": [], "timed_out": False}


async def test_M6_children_are_given_as_child_pair_name_or_class(store_url: str) -> None:
    own = bide.App("own")
    own.machine("child")(ChildMachine)

    @own.machine("forms")
    class Forms:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Spawn:
            children = (
                child
                for child in [
                    bide.Child("child", 1),
                    bide.Child(ChildMachine, 2, tags={"kind": "x"}),
                    ("child", 3),
                    (ChildMachine, 4),
                    bide.Child("child"),
                ]
            )
            return bide.Spawn(children, then="joined")  # type: ignore[arg-type]  # any iterable does

        def joined(self, ctx: Ctx) -> bide.Done:
            return bide.Done([child.result for child in ctx.children])

    async with world(own, store=store_url) as there:
        run = await there.start("forms")
        assert await there.result(run.id) == [1, 2, 3, 4, None]
        assert [found.input for found in await there.runs(tags={"kind": "x"})] == [2]


async def test_M6_children_and_park_are_one_commit(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        there.crash_at("begin", "after_code")
        run = await there.start("parent", {"children": [WAIT, WAIT]})
        assert len(await there.runs(definition="child")) == 2
        there.crash_at("joined", "before")
        for child in await children_of(there, run):
            await there.signal(child.id, "go", 1)
        assert (await there.result(run.id))["children"] == [["completed", 1, None]] * 2
        assert len(await there.runs(definition="child")) == 2


async def test_law_15_a_childs_end_is_counted_once_through_crashes(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("parent", {"children": [WAIT, WAIT]})
        first, second = await children_of(there, run)
        there.crash_at("finish", "after_code")
        there.crash_at("finish", "after_commit")
        await there.signal(first.id, "go", 1)
        assert (await there.get(run.id)).status == "waiting"
        (wait,) = await there.waits(run_id=run.id)
        assert (wait.kind, wait.expected, wait.received) == ("children", 2, 1)
        await there.signal(second.id, "go", 2)
        assert (await there.result(run.id))["children"] == [["completed", 1, None], ["completed", 2, None]]


async def test_M6_a_timeout_bounds_the_join_and_leaves_the_children_alone(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("parent", {"children": ["quick", WAIT]})
        await there.advance("59m")
        assert (await there.get(run.id)).status == "waiting"
        await there.advance("1m")
        assert await there.result(run.id) == {
            "children": [["completed", "quick", None], ["waiting", None, None]],
            "timed_out": True,
        }
        late = (await children_of(there, run))[1]
        await there.signal(late.id, "go", "late")
        assert await there.result(late.id) == "late"


async def test_M6_cancel_children_cancels_the_rest_when_the_join_times_out(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        given = {"children": ["quick", WAIT, WAIT], "options": {"cancel_children": True}}
        run = await there.start("parent", given)
        await there.advance("1h")
        assert (await there.result(run.id))["timed_out"]
        assert [child.status for child in await children_of(there, run)] == ["completed", "cancelled", "cancelled"]


async def test_M6_cancel_children_does_nothing_where_the_join_completes(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("parent", {"children": [1], "options": {"cancel_children": True}})
        assert (await there.result(run.id))["children"] == [["completed", 1, None]]


async def test_M6_cancel_children_cancels_only_the_children_of_its_own_join(store_url: str) -> None:
    own = bide.App("own")
    own.machine("child")(ChildMachine)

    @own.machine("parent")
    class Spawns:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([("child", WAIT)], then="second", timeout="1h")

        def second(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([("child", WAIT)], then="third", timeout="1h", cancel_children=True)

        def third(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([("child", WAIT)], then="joined", timeout="1h")

        def joined(self, ctx: Ctx) -> bide.Done:
            return bide.Done(shown(ctx.children))

    async with world(own, store=store_url) as there:
        run = await there.start("parent")
        await there.advance("2h")
        children = await children_of(there, run)
        assert [child.status for child in children] == ["waiting", "cancelled", "waiting"]
        await there.signal(children[2].id, "go", "third")
        assert await there.result(run.id) == [["completed", "third", None]]


async def test_M6_a_join_that_times_out_may_lead_to_another_step_or_fail(store_url: str) -> None:
    own = bide.App("own")
    own.machine("child")(ChildMachine)

    @own.machine("parent")
    class Spawns:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([("child", WAIT)], then="joined", timeout="1h", on_timeout=ctx.input)

        def joined(self, ctx: Ctx) -> bide.Done:
            return bide.Done("joined")

        def late(self, ctx: Ctx) -> bide.Done:
            return bide.Done(["late", ctx.timed_out, shown(ctx.children)])

    async with world(own, store=store_url) as there:
        late, fails = await there.start("parent", "late"), await there.start("parent", bide.FAIL)
        await there.advance("1h")
        assert await there.result(late.id) == ["late", True, [["waiting", None, None]]]
        info = await there.get(fails.id)
        assert (info.status, info.error and info.error.code) == ("failed", "AWAIT_TIMEOUT")


async def test_M6_signals_do_not_end_a_join(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("parent", {"children": [WAIT]})
        assert (await there.signal(run.id, "go")).outcome == "queued"
        assert (await there.get(run.id)).status == "waiting"


async def test_M6_a_childs_correlation_key_is_its_address(store_url: str) -> None:
    own = bide.App("own")
    own.machine("child")(ChildMachine)

    @own.machine("parent")
    class Spawns:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([bide.Child("child", WAIT, correlation_key=f"parcel:{n}") for n in (1, 2)], then="joined")

        def joined(self, ctx: Ctx) -> bide.Done:
            return bide.Done([child.result for child in ctx.children])

    async with world(own, store=store_url) as there:
        run = await there.start("parent")
        await there.signal("parcel:2", "go", "two")
        await there.signal("parcel:1", "go", "one")
        assert await there.result(run.id) == ["one", "two"]
        assert (await there.start("child", 1, correlation_key="parcel:1")).status == "completed"


@pytest.mark.parametrize("taken_by", ["another run", "a sibling"])
async def test_M6_a_childs_key_that_is_taken_fails_the_parent_and_starts_no_child(
    store_url: str, taken_by: str
) -> None:
    own = bide.App("own")
    own.machine("child")(ChildMachine)
    keys = ["free", "parcel:1"] if taken_by == "another run" else ["twice", "twice"]

    @own.machine("parent")
    class Spawns:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([bide.Child("child", WAIT, correlation_key=key) for key in keys], then="joined")

        def joined(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    async with world(own, store=store_url) as there:
        holder = await there.start("child", WAIT, correlation_key="parcel:1")
        run = await there.start("parent")
        assert run.status == "failed"
        assert run.info.error is not None
        assert run.info.error.code == "DuplicateRun"
        assert f"'{keys[1]}' is held by" in run.info.error.message
        assert [found.id for found in await there.runs(definition="child")] == [holder.id]
        assert (await there.start("child", 1, correlation_key=keys[0])).status == "completed"


async def test_M6_cancelling_a_parent_cancels_its_children_and_theirs(store_url: str) -> None:
    own = bide.App("own")
    own.machine("child")(ChildMachine)

    @own.machine("nested")
    class Nested:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Spawn:
            depth = ctx.input
            inner = [("nested", depth - 1)] if depth else [("child", WAIT)]
            return bide.Spawn(inner, then="joined")

        def joined(self, ctx: Ctx) -> bide.Done:
            return bide.Done([child.result for child in ctx.children])

    async with world(own, store=store_url) as there:
        run = await there.start("nested", 2)
        assert len(await there.runs()) == 4
        await there.cancel(run.id)
        assert {found.status for found in await there.runs()} == {"cancelled"}


async def test_M6_a_result_comes_up_through_generations(store_url: str) -> None:
    own = bide.App("own")
    own.machine("child")(ChildMachine)

    @own.machine("nested")
    class Nested:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Spawn:
            inner = [("nested", ctx.input - 1)] if ctx.input else [("child", "leaf")]
            return bide.Spawn(inner, then="joined")

        def joined(self, ctx: Ctx) -> bide.Done:
            return bide.Done([ctx.input, ctx.children[0].result])

    async with world(own, store=store_url) as there:
        assert await there.result((await there.start("nested", 2)).id) == [2, [1, [0, "leaf"]]]


async def test_M6_many_children_are_joined(store_url: str) -> None:
    async with world(app, store=store_url, concurrency=7) as there:
        run = await there.start("parent", {"children": list(range(250))})
        result = await there.result(run.id)
        assert [child[1] for child in result["children"]] == list(range(250))


async def test_M6_many_children_are_cancelled_with_their_parent(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("parent", {"children": [WAIT] * 250})
        await there.cancel(run.id)
        children = [await there.get(child.id) for child in await children_of(there, run)]
        assert {child.status for child in children} == {"cancelled"}
        assert len(children) == 250


async def test_M6_a_child_lives_in_its_parents_workspace(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.client("other").start("parent", {"children": [WAIT]})
        await there.settle()
        (child,) = await there.client("other").runs(definition="child")
        assert (child.workspace, child.parent_id) == ("other", run.id)
        assert await there.runs() == []


@pytest.mark.parametrize(
    ("children", "words"),
    [
        ([("no-such", 1)], "no definition is called 'no-such' in this app; registered are: bad, child"),
        ([5], "5 is no child"),
        ([("child",)], "is no child"),
        ([("child", 1, 2)], "is no child"),
        (["child"], "'child' is no child"),
        ([(None, 1)], "None is no definition"),
        (None, "children=None"),
        (5, "children=5"),
        ("child", "children='child'"),
        (bide.Child("child"), "children=Child("),
        ({"child": 1}, "children={'child': 1}"),
    ],
)
async def test_M6_what_is_no_child_fails_the_run_in_words(store_url: str, children: Any, words: str) -> None:
    own = bide.App("own")
    own.machine("child")(ChildMachine)

    @own.machine("bad")
    class Bad:
        def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn(children, then="begin")

    async with world(own, store=store_url) as there:
        run = await there.start("bad")
        assert run.status == "failed"
        assert run.info.error is not None
        assert run.info.error.code == "BadOutcome"
        assert words in run.info.error.message
        assert len(await there.runs()) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"correlation_key": "run_1"}, "starts like an id of bide's own"),
        ({"correlation_key": ""}, "1 to 200 printable characters"),
        ({"correlation_key": "x" * 201}, "1 to 200 printable characters"),
        ({"correlation_key": 5}, "1 to 200 printable characters"),
        ({"tags": {"a": 1}}, "tag 'a' with the value 1"),
        ({"tags": None}, "tags=None"),
        ({"input": object()}, "the input of 'child' cannot be stored"),
        ({"input": float("nan")}, "the input of 'child' cannot be stored"),
    ],
)
async def test_M6_a_child_that_cannot_be_started_fails_the_parent_in_words(
    store_url: str, options: dict[str, Any], words: str
) -> None:
    own = bide.App("own")
    own.machine("child")(ChildMachine)

    @own.machine("bad")
    class Bad:
        def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([bide.Child("child", **options)], then="begin")

    async with world(own, store=store_url) as there:
        run = await there.start("bad")
        assert run.status == "failed"
        assert run.info.error is not None
        assert run.info.error.code == "BadInput"
        assert words in run.info.error.message
        assert len(await there.runs()) == 1


async def test_M6_the_ledger_of_a_parent_names_its_children_and_their_join(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("parent", {"children": [1, 2]})
        names = await ledger_names(there, run.id)
        assert names.count("child_started") == 2
        completed = next(entry for entry in await there.ledger(run.id) if entry.name == "await_unit_completed")
        assert (completed.data["expected"], completed.data["completed"]) == (2, 2)
