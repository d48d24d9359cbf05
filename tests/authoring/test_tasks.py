"""Human tasks: asked, answered, refused, decided by several (F10, W3, W7, W11, W12, U1, U8, U14)."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec
import pytest

import bide
from bide.testing import World, world
from tests.support.worlds import ledger_names


class Verdict(msgspec.Struct):
    approved: bool
    note: str = ""


def approvals(**options: Any) -> bide.App:
    """One workflow that asks for a verdict and says how it went."""
    app = bide.App("approvals")

    @app.groups
    def groups_of(principal: str) -> list[str]:
        return {"ann": ["leads"], "ben": ["leads"], "cy": ["leads"]}.get(principal, [])

    @app.workflow("approve")
    async def approve(step: bide.Step, draft: Any) -> Any:
        task = step.ask("gate", title="Send it?", form=Verdict, timeout="48h", shown=draft, **options)
        try:
            answer = await task
        except bide.WaitTimeoutError:
            return "expired"
        except bide.WaitFailedError as error:
            return f"{type(error).__name__}: {error.reason}"
        if isinstance(answer, bide.Decision):
            return [answer.outcome, answer.value, [[given.by, given.value.approved] for given in answer.answers]]
        return [answer.approved, answer.note]

    return app


async def asked(w: World, draft: Any = "Dear all") -> bide.InteractionInfo:
    run = await w.start("approve", draft)
    [task] = await w.interactions(run_id=run.id)
    return task


# ---------------------------------------------------------------- asking and answering


async def test_U14_a_task_is_listed_with_everything_a_person_needs(store_url: str) -> None:
    """F10, U14."""
    app = approvals(assignee="ann", group="leads", channel="chat", description="Look twice", metadata={"order": 7})
    async with world(app, store_url) as w:
        task = await asked(w, {"text": "Dear all"})
        assert task.id == f"int_{task.run_id.removeprefix('run_')}_1_0"
        assert (task.status, task.title, task.description) == ("waiting", "Send it?", "Look twice")
        assert (task.assignee, task.group, task.channel) == ("ann", "leads", "chat")
        assert (task.transport, task.step, task.item) == ("interaction-api", "gate", 0)
        assert task.payload == {"text": "Dear all"}
        assert task.metadata == {"order": 7}
        assert task.schema["$defs"]["Verdict"]["properties"]["approved"] == {"type": "boolean"}
        assert task.deadline is not None
        assert (task.deadline - task.opened_at).total_seconds() == 48 * 3600
        assert task.correlation_id
        assert (task.answer, task.answered_by) == (None, None)
        assert await w.interaction(task.id) == task


async def test_U1_a_run_its_waits_and_their_interactions_are_records_of_their_own(store_url: str) -> None:
    """U1: the run points at all that is open; each wait has its interaction, and an answer closes both."""
    app = bide.App("pairs")

    @app.workflow("pair")
    async def pair(step: bide.Step, event: Any) -> Any:
        tasks = [step.ask(name, title=name, form=bool, timeout="1h") for name in ("one", "two")]
        return list(await step.all("both", *tasks))

    async with world(app, store_url) as w:
        run = await w.start("pair")
        tasks = {task.step: task for task in await w.interactions(run_id=run.id)}
        both = (tasks["one"].wait_id, tasks["two"].wait_id)
        info = await w.get(run.id)
        assert info.status == "waiting"
        assert (set(info.wait_ids), info.wait_id in both) == (set(both), True)
        await w.answer(tasks["one"].id, True)
        info = await w.get(run.id)
        assert (info.status, info.wait_ids, info.wait_id) == ("waiting", (both[1],), both[1])
        assert [(await w.wait(id)).status for id in both] == ["completed", "waiting"]
        assert [(await w.interaction(tasks[name].id)).status for name in ("one", "two")] == ["completed", "waiting"]
        await w.answer(tasks["two"].id, False)
        assert await w.result(run.id) == [True, False]
        info = await w.get(run.id)
        assert (info.status, info.wait_ids, info.wait_id) == ("completed", (), None)


async def test_F10_the_answer_goes_to_the_body_as_the_form(store_url: str) -> None:
    """F10, W11: who and when is recorded."""
    async with world(approvals(), store_url) as w:
        task = await asked(w)
        receipt = await w.answer(task.id, {"approved": True, "note": "go"}, by="ann")
        assert (receipt.outcome, receipt.run_id, receipt.wait_id) == ("woke", task.run_id, task.wait_id)
        assert receipt.interaction_id == task.id
        assert await w.result(task.run_id) == [True, "go"]
        after = await w.interaction(task.id)
        assert (after.status, after.answer, after.answered_by) == ("completed", {"approved": True, "note": "go"}, "ann")
        assert after.closed_at == w.now


async def test_the_ledger_tells_the_whole_life_of_an_interaction(store_url: str) -> None:
    """G3."""
    async with world(approvals(), store_url) as w:
        task = await asked(w)
        await w.answer(task.id, {"approved": True}, by="ann")
        entries = [entry for entry in await w.ledger(task.run_id) if entry.name.startswith("await_")]
        assert [entry.name for entry in entries] == [
            "await_interaction_dispatched",
            "await_unit_dispatch_complete",
            "await_execution_waiting",
            "await_answer_received",
            "await_unit_item_completed",
            "await_unit_completed",
            "await_resume_released",
        ]
        dispatched = entries[0].data
        assert dispatched["interaction"] == task.id
        assert dispatched["correlation"] == task.correlation_id
        assert dispatched["transport"] == "interaction-api"
        assert entries[4].data["completed"] == entries[4].data["expected"] == 1


@pytest.mark.parametrize("address", ["interaction", "wait"])
async def test_a_task_is_answered_by_its_interaction_or_its_wait(store_url: str, address: str) -> None:
    """§12: `answer` takes either."""
    async with world(approvals(), store_url) as w:
        task = await asked(w)
        target = task.id if address == "interaction" else task.wait_id
        assert (await w.answer(target, {"approved": False})).outcome == "woke"
        assert await w.result(task.run_id) == [False, ""]


async def test_F10_a_form_may_be_a_literal_or_a_json_schema(store_url: str) -> None:
    """F10."""
    app = bide.App()

    @app.workflow("pick")
    async def pick(step: bide.Step) -> Any:
        colour = await step.ask("colour", title="Which?", form=Literal["red", "blue"], timeout="1h")
        size = await step.ask("size", title="How big?", form={"type": "integer", "minimum": 1}, timeout="1h")
        return [colour, size]

    async with world(app, store_url) as w:
        run = await w.start("pick")
        [first] = await w.interactions(run_id=run.id)
        with pytest.raises(bide.InvalidAnswer):
            await w.answer(first.id, "green")
        await w.answer(first.id, "red")
        [second] = await w.interactions(run_id=run.id)
        with pytest.raises(bide.InvalidAnswer, match="minimum"):
            await w.answer(second.id, 0)
        await w.answer(second.id, 3)
        assert await w.result(run.id) == ["red", 3]


async def test_an_invalid_answer_says_every_problem_and_the_task_stays_open(store_url: str) -> None:
    """W3, S12."""
    async with world(approvals(), store_url) as w:
        task = await asked(w)
        with pytest.raises(bide.InvalidAnswer) as raised:
            await w.answer(task.id, {"approved": "yes", "note": 7}, by="ann")
        assert len(raised.value.problems) == 2
        assert any("$.approved" in problem for problem in raised.value.problems)
        assert (await w.interaction(task.id)).status == "waiting"
        [rejected] = [entry for entry in await w.ledger(task.run_id) if entry.name == "await_answer_rejected"]
        assert rejected.data["by"] == "ann"
        assert len(rejected.data["problems"]) == 2
        [kept] = await w.unused()
        assert (kept.target, kept.reason, kept.payload) == (task.id, "invalid_payload", {"approved": "yes", "note": 7})
        assert (await w.answer(task.id, {"approved": True})).outcome == "woke"


# ---------------------------------------------------------------- twice, late, to nobody


async def test_U8_the_same_answer_again_is_a_duplicate_and_another_one_a_conflict(store_url: str) -> None:
    """U8: keys in another order are the same answer."""
    async with world(approvals(), store_url) as w:
        task = await asked(w)
        await w.answer(task.id, {"approved": True, "note": "go"}, by="ann")
        again = await w.answer(task.id, {"note": "go", "approved": True}, by="ann")
        assert (again.outcome, again.duplicate) == ("duplicate", True)
        with pytest.raises(bide.ConflictingAnswer):
            await w.answer(task.id, {"approved": False}, by="ann")
        [kept] = await w.unused()
        assert kept.reason == "already_completed"


async def test_a_dedup_key_makes_a_lost_reply_harmless(store_url: str) -> None:
    """S7, law 5."""
    async with world(approvals(), store_url) as w:
        task = await asked(w)
        await w.answer(task.id, {"approved": True}, dedup_key="click-1")
        assert (await w.answer(task.id, {"approved": True}, dedup_key="click-1")).outcome == "duplicate"
        with pytest.raises(bide.DedupConflict):
            await w.answer(task.id, {"approved": False}, dedup_key="click-1")


async def test_W7_an_answer_after_the_time_is_late(store_url: str) -> None:
    """W2, W7."""
    async with world(approvals(), store_url) as w:
        task = await asked(w)
        await w.advance("48h")
        assert await w.result(task.run_id) == "expired"
        assert (await w.interaction(task.id)).status == "timed_out"
        receipt = await w.answer(task.id, {"approved": True})
        assert (receipt.outcome, receipt.reason) == ("late", "timed_out")


async def test_W7_an_answer_to_a_cancelled_task_finds_nobody(store_url: str) -> None:
    """W7, W8: a cancelled run cancels its interactions."""
    async with world(approvals(), store_url) as w:
        task = await asked(w)
        await w.cancel(task.run_id)
        assert (await w.interaction(task.id)).status == "cancelled"
        receipt = await w.answer(task.id, {"approved": True}, check=False)
        assert (receipt.outcome, receipt.reason) == ("no_target", "cancelled")


@pytest.mark.parametrize("target", ["int_nowhere_1_0", "wait_nowhere_1", "int_", "int_x", "wait_x_0x1", "int_a_1_²"])
async def test_W7_an_answer_to_nothing_finds_nothing(store_url: str, target: str) -> None:
    """S2, W7."""
    async with world(approvals(), store_url) as w:
        with pytest.raises(bide.WaitNotFound):
            await w.answer(target, {})


async def test_another_workspace_sees_and_answers_nothing(store_url: str) -> None:
    """Law 8."""
    async with world(approvals(), store_url) as w:
        task = await asked(w)
        other = w.client("other")
        assert await other.interactions() == []
        for call in (
            other.interaction(task.id),
            other.answer(task.id, {"approved": True}),
            other.claim(task.id, "ann"),
            other.assign(task.id, assignee="eve"),
            other.fail_wait(task.wait_id, "because"),
        ):
            with pytest.raises(bide.WaitNotFound):
                await call


async def test_a_withdrawn_task_is_cancelled(store_url: str) -> None:
    """F12, law 1: what the body gives up is withdrawn, with its interaction."""
    app = bide.App()

    @app.workflow("race")
    async def race(step: bide.Step) -> Any:
        try:
            async with asyncio.timeout(3600):
                return await step.ask("task", title="Well?", form=bool, timeout="1d")
        except TimeoutError:
            return False

    async with world(app, store_url) as w:
        run = await w.start("race")
        [task] = await w.interactions(run_id=run.id)
        await w.advance("1h")
        assert await w.result(run.id) is False
        assert (await w.interaction(task.id)).status == "cancelled"


async def test_a_crash_after_the_question_asks_it_once(store_url: str) -> None:
    """F6: a retry re-suspends on the same row."""
    async with world(approvals(), store_url) as w:
        task = await asked(w)
        await w.crash()
        await w.settle()
        [same] = await w.interactions(run_id=task.run_id)
        assert same.id == task.id
        await w.answer(task.id, {"approved": True})
        assert await w.result(task.run_id) == [True, ""]


# ---------------------------------------------------------------- who may


async def test_only_the_assignee_or_the_group_may_answer(store_url: str) -> None:
    """W11: 403 at the door, and an entry in the ledger."""
    async with world(approvals(assignee="dan", group="leads"), store_url) as w:
        task = await asked(w)
        for by in (None, "eve"):
            with pytest.raises(bide.Forbidden):
                await w.answer(task.id, {"approved": True}, by=by)
        denied = [entry.data["by"] for entry in await w.ledger(task.run_id) if entry.name == "await_answer_denied"]
        assert denied == [None, "eve"]
        assert (await w.answer(task.id, {"approved": True}, by="ben")).outcome == "woke"


async def test_whoever_may_not_answer_learns_nothing_of_the_schema(store_url: str) -> None:
    """H1: 403 comes before 422."""
    async with world(approvals(assignee="dan"), store_url) as w:
        task = await asked(w)
        with pytest.raises(bide.Forbidden):
            await w.answer(task.id, {"nonsense": 1}, by="eve")


async def test_groups_may_be_looked_up_asynchronously(store_url: str) -> None:
    """W11."""
    app = bide.App()

    @app.groups
    async def groups_of(principal: str) -> set[str]:
        return {"leads"} if principal == "ann" else set()

    @app.workflow("approve")
    async def approve(step: bide.Step) -> Any:
        return await step.ask("gate", title="Well?", form=bool, group="leads", timeout="1d")

    async with world(app, store_url) as w:
        run = await w.start("approve")
        [task] = await w.interactions(group="leads")
        with pytest.raises(bide.Forbidden):
            await w.answer(task.id, True, by="ben")
        await w.answer(task.id, True, by="ann")
        assert await w.result(run.id) is True


async def test_a_claimed_task_is_for_whoever_claimed_it(store_url: str) -> None:
    """§7: claim, release, assign."""
    async with world(approvals(group="leads"), store_url) as w:
        task = await asked(w)
        with pytest.raises(bide.Forbidden):
            await w.claim(task.id, "eve")
        assert (await w.claim(task.id, "ann")).claimed_by == "ann"
        assert (await w.claim(task.id, "ann")).claimed_by == "ann"
        with pytest.raises(bide.TaskTaken, match="ann"):
            await w.claim(task.id, "ben")
        with pytest.raises(bide.TaskTaken):
            await w.release(task.id, "ben")
        with pytest.raises(bide.Forbidden, match="ann has claimed it"):
            await w.answer(task.id, {"approved": True}, by="ben")
        assert (await w.release(task.id, "ann")).claimed_by is None
        await w.claim(task.id, "ben")
        moved = await w.assign(task.id, assignee="eve", reason="holidays")
        assert (moved.assignee, moved.group, moved.claimed_by) == ("eve", None, None)
        with pytest.raises(bide.Forbidden):
            await w.answer(task.id, {"approved": True}, by="ben")
        await w.answer(task.id, {"approved": True}, by="eve")
        names = await ledger_names(w, task.run_id)
        assert names.count("await_interaction_claimed") == 2
        assert "await_updated" in names
        with pytest.raises(bide.AlreadyAnswered):
            await w.claim(task.id, "eve")


async def test_interactions_are_found_by_whom_they_are_for(store_url: str) -> None:
    """§12."""
    app = bide.App()

    @app.workflow("ask")
    async def ask(step: bide.Step, whom: dict[str, str]) -> Any:
        terms: Any = whom
        return await step.ask("gate", title="Well?", form=bool, timeout="1d", **terms)

    async with world(app, store_url) as w:
        runs = [await w.start("ask", whom) for whom in ({"assignee": "ann"}, {"group": "leads"}, {"channel": "chat"})]
        found = {
            "ann": await w.interactions(assignee="ann"),
            "leads": await w.interactions(group="leads"),
            "chat": await w.interactions(channel="chat"),
        }
        assert [[task.run_id for task in page] for page in found.values()] == [[run.id] for run in runs]
        assert [task.run_id for task in await w.interactions(definition="ask")] == sorted(run.id for run in runs)
        assert await w.interactions(definition="other") == []
        await w.answer(found["ann"][0].id, True, by="ann")
        assert len(await w.interactions()) == 2
        assert [task.run_id for task in await w.interactions(status="completed")] == [runs[0].id]
        assert len(await w.interactions(status=None)) == 3
        page = await w.interactions(status=None, limit=2)
        rest = await w.interactions(status=None, limit=2, cursor=page.next_cursor)
        assert [*(t.id for t in page), *(t.id for t in rest)] == [t.id for t in await w.interactions(status=None)]
        assert rest.next_cursor is None
        with pytest.raises(bide.BadInput):
            await w.interactions(status="opne")
        with pytest.raises(bide.BadInput):
            await w.interactions(cursor="nonsense")


# ---------------------------------------------------------------- several answers


async def test_a_quorum_completes_when_enough_people_agree(store_url: str) -> None:
    """W11: distinct answerers, partial answers visible."""
    async with world(approvals(group="leads", quorum=2, decides="approved"), store_url) as w:
        task = await asked(w)
        first = await w.answer(task.id, {"approved": True}, by="ann")
        assert first.outcome == "queued"
        assert (await w.answer(task.id, {"approved": True}, by="ann")).outcome == "duplicate"
        with pytest.raises(bide.ConflictingAnswer):
            await w.answer(task.id, {"approved": False}, by="ann")
        await w.answer(task.id, {"approved": False}, by="ben")
        partial = await w.interaction(task.id)
        assert [(given.by, given.value["approved"]) for given in partial.answers] == [("ann", True), ("ben", False)]
        assert partial.answers[0].receipt == first.decision
        assert (partial.status, (await w.get(task.run_id)).status) == ("waiting", "waiting")
        assert (await w.answer(task.id, {"approved": True}, by="cy")).outcome == "woke"
        assert await w.result(task.run_id) == ["agreed", True, [["ann", True], ["ben", False], ["cy", True]]]
        assert (await w.answer(task.id, {"approved": False}, by="ben")).outcome == "duplicate"


async def test_a_veto_ends_it_at_once(store_url: str) -> None:
    """W11."""
    async with world(approvals(group="leads", quorum=2, veto=True, decides="approved"), store_url) as w:
        task = await asked(w)
        await w.answer(task.id, {"approved": True}, by="ann")
        assert (await w.answer(task.id, {"approved": False}, by="ben")).outcome == "woke"
        assert await w.result(task.run_id) == ["vetoed", False, [["ann", True], ["ben", False]]]


async def test_it_is_undecided_when_agreement_is_not_possible_any_more(store_url: str) -> None:
    """W11."""
    async with world(approvals(group="leads", quorum=2, decides="approved", most_answers=2), store_url) as w:
        task = await asked(w)
        await w.answer(task.id, {"approved": True}, by="ann")
        await w.answer(task.id, {"approved": False}, by="ben")
        assert await w.result(task.run_id) == ["undecided", None, [["ann", True], ["ben", False]]]


async def test_several_must_say_who_they_are_and_cannot_claim(store_url: str) -> None:
    """W11."""
    async with world(approvals(quorum=2), store_url) as w:
        task = await asked(w)
        with pytest.raises(bide.Forbidden, match="by="):
            await w.answer(task.id, {"approved": True})
        with pytest.raises(bide.TaskTaken, match="several"):
            await w.claim(task.id, "ann")
        await w.answer(task.id, {"approved": True}, by="ann")
        await w.answer(task.id, {"approved": False}, by="eve")
        assert await w.result(task.run_id) == ["answered", None, [["ann", True], ["eve", False]]]


async def test_the_timeout_of_a_quorum_keeps_what_was_answered(store_url: str) -> None:
    """W11, W2."""
    async with world(approvals(quorum=2, decides="approved"), store_url) as w:
        task = await asked(w)
        await w.answer(task.id, {"approved": True}, by="ann")
        await w.advance("48h")
        assert await w.result(task.run_id) == "expired"
        after = await w.interaction(task.id)
        assert (after.status, [given.by for given in after.answers]) == ("timed_out", ["ann"])


# ---------------------------------------------------------------- decision receipts


def sending(app: bide.App, *, change: bool = False, forge: bool = False) -> list[str]:
    """A workflow that acts only on what was approved; the list is what it sent."""
    sent: list[str] = []

    @app.workflow("send", retries=2)
    async def send(step: bide.Step, draft: str) -> Any:
        task = step.ask("gate", title="Send it?", form=bool, shown=draft, timeout="1d", default=None)
        await task
        receipt = task.receipt
        if forge and receipt is not None:
            receipt = msgspec.structs.replace(receipt, by="boss")
        text = f"{draft}!" if change else draft
        await step.options(requires=receipt, shown=text).run("send", sent.append, text)
        return receipt.by if receipt is not None else None

    return sent


async def test_W12_a_step_acts_on_the_receipt_of_the_decision(store_url: str) -> None:
    """W12."""
    app = bide.App()
    sent = sending(app)
    async with world(app, store_url) as w:
        run = await w.start("send", "Dear all")
        [task] = await w.interactions(run_id=run.id)
        with pytest.raises(bide.ConflictingAnswer, match="something else"):
            await w.answer(task.id, True, by="ann", shown="another digest")
        receipt = await w.answer(task.id, True, by="ann", shown=task.shown)
        assert receipt.decision is not None
        assert await w.result(run.id) == "ann"
        assert sent == ["Dear all"]


@pytest.mark.parametrize("how", ["changed", "forged", "nobody"])
async def test_W12_a_step_refuses_to_act_on_another_receipt(store_url: str, how: str) -> None:
    """W12: never retried."""
    app = bide.App()
    sent = sending(app, change=how == "changed", forge=how == "forged")
    async with world(app, store_url) as w:
        run = await w.start("send", "Dear all")
        [task] = await w.interactions(run_id=run.id)
        if how == "nobody":
            await w.advance("1d")
        else:
            await w.answer(task.id, True, by="ann")
        info = await w.get(run.id)
        assert (info.status, info.error and info.error.code) == ("failed", "ReceiptMismatch")
        assert sent == []
        assert "step_retried" not in await ledger_names(w, run.id)


async def test_W12_a_receipt_of_another_run_is_refused(store_url: str) -> None:
    """W12."""
    app = bide.App()
    taken: list[Any] = []

    @app.workflow("ask")
    async def ask(step: bide.Step, reuse: bool) -> Any:
        task = step.ask("gate", title="Send it?", form=bool, timeout="1d")
        await task
        taken.append(task.receipt)
        await step.options(requires=taken[0] if reuse else task.receipt).run("act", str, "acted")

    async with world(app, store_url) as w:
        for reuse, status in ((False, "completed"), (True, "failed")):
            run = await w.start("ask", reuse)
            [task] = await w.interactions(run_id=run.id)
            await w.answer(task.id, True)
            assert (await w.get(run.id)).status == status


# ---------------------------------------------------------------- what cannot be asked


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout": None}, "no timeout"),
        ({"timeout": "soon"}, "soon"),
        ({"timeout": "-1h"}, "-1h"),
        ({"title": " "}, "title"),
        ({"form": {"type": "nonsense"}}, "no JSON Schema"),
        ({"form": object()}, "no type"),
        ({"notify": "nobody"}, "no notifier"),
        ({"quorum": 0}, "quorum"),
        ({"quorum": 101}, "quorum"),
        ({"quorum": True}, "quorum"),
        ({"quorum": 2, "assignee": "ann"}, "only ann"),
        ({"quorum": 2, "decides": "aproved"}, "no such field"),
        ({"quorum": 2, "veto": True}, "no decides"),
        ({"quorum": 2, "veto": True, "decides": "note"}, "no boolean"),
        ({"quorum": 2, "decides": "approved", "most_answers": 1}, "most_answers"),
        ({"reminders": ["2d"], "timeout": "1d"}, "after the wait has ended"),
        ({"reminders": ["often"]}, "often"),
        ({"escalate": {"1h": "group:"}}, "names nobody"),
        ({"escalate": ["1h"]}, "mapping"),
        ({"heartbeat": "0s"}, "heartbeat"),
        ({"assignee": ""}, "assignee"),
        ({"metadata": ["a"]}, "mapping"),
        ({"shown": float("nan")}, "shown"),
    ],
)
async def test_what_cannot_be_asked_is_refused_before_anybody_is(options: dict[str, Any], words: str) -> None:
    """Bad input: a clear error at the earliest moment, never retried (F16)."""
    app = bide.App()

    @app.workflow("ask")
    async def ask(step: bide.Step) -> Any:
        return await step.ask("gate", **{"title": "Well?", "form": Verdict, "timeout": "1d", **options})

    async with world(app) as w:
        run = await w.start("ask")
        info = await w.get(run.id)
        assert info.status == "failed"
        assert info.error is not None
        assert info.error.code in ("BadInput", "PayloadTooLarge")
        assert words in info.error.message
        assert await w.interactions(status=None) == []


def test_notifiers_and_groups_that_cannot_work_are_refused_when_they_are_registered() -> None:
    """Bad input: at the earliest moment."""
    app = bide.App()

    @app.notifier(name="mail")
    def send(task: bide.Task) -> None: ...

    @app.groups
    def groups_of(principal: str) -> list[str]:
        return []

    for register in (
        lambda: app.notifier(7),  # type: ignore[call-overload]
        lambda: app.notifier(lambda task: None, name="mail"),
        lambda: app.notifier(lambda task: None, name=""),
        lambda: app.groups(groups_of),
        lambda: bide.App().groups(7),  # type: ignore[type-var]
    ):
        with pytest.raises(bide.BadDefinition):
            register()
