"""Answers that are held until somebody waits for them: `complete(…, hold="10m")` (F7, S7, S10, S12, law 2)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypedDict

import pytest

import bide
from bide.testing import World, world
from tests.support.worlds import ledger_names


class Approval(TypedDict):
    approved: bool


def gates() -> bide.App:
    """Workflows that wait for a signal id of the caller's choice."""
    app = bide.App()

    @app.workflow("gate", retries=0)
    async def gate(step: bide.Step, signal: str) -> Any:
        try:
            return await step.wait_for_signal("gate", signal=signal, timeout="1h", returns=Approval)
        except bide.SignalTimeoutError:
            return "late"

    @app.workflow("reserving", retries=0)
    async def reserving(step: bide.Step, signal: str) -> Any:
        await step.reserve_signal("gate", signal=signal, returns=Approval)
        await step.sleep("day", "1d")
        return await step.wait_for_signal("gate", signal=signal, timeout="1h", returns=Approval)

    @app.workflow("private", retries=0)
    async def private(step: bide.Step, signal: str) -> Any:
        return await step.wait_for_signal("gate", signal=signal, timeout="1h", assignee="ann")

    @app.workflow("secret", redact=["card"], retries=0)
    async def secret(step: bide.Step, signal: str) -> Any:
        return await step.wait_for_signal("gate", signal=signal, timeout="1h")

    return app


YES, NO = {"approved": True}, {"approved": False}


async def unused(there: World) -> list[tuple[str, str, Any]]:
    return [(kept.target, kept.reason, kept.payload) for kept in await there.unused()]


async def test_F7_an_answer_is_held_for_the_first_wait_of_its_id(store_url: str) -> None:
    async with world(gates(), store=store_url) as there:
        receipt = await there.complete("a", YES, hold="10m")
        assert (receipt.outcome, receipt.run_id, receipt.wait_id) == ("queued", None, None)
        await there.crash()
        run = await there.start("gate", "a")
        assert await there.result(run.id) == YES
        assert str(receipt.message_id) in str(await there.ledger(run.id))
        second = await there.start("gate", "a")
        assert (await there.get(second.id)).status == "waiting"
        assert await unused(there) == []


async def test_F7_the_ledger_says_who_gave_the_answer_that_was_held(store_url: str) -> None:
    async with world(gates(), store=store_url) as there:
        await there.client().complete("a", YES, by="ann", hold="10m")
        run = await there.start("gate", "a")
        [received] = [entry for entry in await there.ledger(run.id) if entry.name == "await_answer_received"]
        assert (received.actor, received.data["by"]) == ("client", "ann")


async def test_F7_a_held_answer_is_kept_across_a_reservation(store_url: str) -> None:
    async with world(gates(), store=store_url) as there:
        await there.complete("a", YES, hold="10m")
        run = await there.start("reserving", "a")
        assert (await there.get(run.id)).status == "waiting"
        await there.advance("1d")
        assert await there.result(run.id) == YES


async def test_F7_where_a_wait_is_open_or_reserved_hold_just_answers(store_url: str) -> None:
    async with world(gates(), store=store_url) as there:
        run, reserved = await there.start("gate", "a"), await there.start("reserving", "b")
        receipt = await there.complete("a", YES, hold="10m")
        assert (receipt.outcome, receipt.run_id) == ("woke", run.id)
        assert await there.result(run.id) == YES
        receipt = await there.complete("b", NO, hold="10m")
        assert (receipt.outcome, receipt.run_id) == ("queued", reserved.id)
        await there.advance("1d")
        assert await there.result(reserved.id) == NO


async def test_F7_W3_data_against_the_schema_of_an_open_wait_is_refused_also_with_hold(store_url: str) -> None:
    async with world(gates(), store=store_url) as there:
        run = await there.start("gate", "a")
        receipt = await there.complete("a", {"approved": "maybe"}, hold="10m", check=False)
        assert (receipt.outcome, receipt.run_id) == ("invalid", run.id)
        assert (await there.get(run.id)).status == "waiting"


async def test_F7_a_held_answer_that_fails_the_schema_is_kept_unused_and_the_wait_stays_open(store_url: str) -> None:
    async with world(gates(), store=store_url) as there:
        bad = {"approved": "maybe"}
        await there.complete("a", bad, hold="10m", dedup_key="k")
        run = await there.start("gate", "a")
        assert (await there.get(run.id)).status == "waiting"
        assert await unused(there) == [("a", "invalid_payload", bad)]
        assert "await_answer_rejected" in await ledger_names(there, run.id)
        assert (await there.complete("a", YES, dedup_key="k")).outcome == "woke"  # it never was admitted
        assert await there.result(run.id) == YES


async def test_F7_a_hold_ends_by_the_clock_of_the_store_and_its_dedup_key_with_it(store_url: str) -> None:
    async with world(gates(), store=store_url) as there:
        await there.complete("a", YES, hold="10m", dedup_key="k")
        await there.advance("9m59s")
        assert (await there.complete("a", YES, hold="10m", dedup_key="k")).outcome == "duplicate"
        assert await unused(there) == []
        await there.advance("1s")
        assert await unused(there) == [("a", "expired", YES)]
        run = await there.start("gate", "a")
        assert (await there.get(run.id)).status == "waiting"
        assert (await there.complete("a", NO, dedup_key="k")).outcome == "woke"
        assert await there.result(run.id) == NO


@pytest.mark.parametrize("then", ["a wait", "a hold", "an answer"])
async def test_F7_an_answer_whose_time_is_up_is_not_used_though_nobody_has_looked_yet(
    store_url: str, then: str
) -> None:
    """D8: the deadline decides, and not when a sweep comes by."""
    async with world(gates(), store=store_url) as there:
        await there.complete("a", YES, hold="10m", dedup_key="k")
        there.clock.advance(timedelta(minutes=10))
        if then == "a wait":
            run = await there.start("gate", "a")
            assert (await there.get(run.id)).status == "waiting"
        elif then == "a hold":
            assert (await there.complete("a", NO, hold="10m", dedup_key="k", settle=False)).outcome == "queued"
            assert await there.result((await there.start("gate", "a")).id) == NO
        else:
            assert (await there.complete("a", NO, check=False, settle=False)).outcome == "no_target"
        assert ("a", "expired", YES) in await unused(there)


async def test_F7_S7_a_repeated_hold_is_a_duplicate_before_and_after_its_answer_was_taken(store_url: str) -> None:
    async with world(gates(), store=store_url) as there:
        first = await there.complete("a", YES, hold="10m", dedup_key="k")
        again = await there.complete("a", YES, hold="10m", dedup_key="k")
        assert (again.outcome, again.duplicate, again.message_id) == ("duplicate", True, first.message_id)
        with pytest.raises(bide.DedupConflict):
            await there.complete("a", NO, hold="10m", dedup_key="k")
        run = await there.start("gate", "a")
        assert await there.result(run.id) == YES
        again = await there.complete("a", YES, hold="10m", dedup_key="k")
        assert (again.outcome, again.run_id) == ("duplicate", run.id)


async def test_F7_of_two_holds_for_one_id_the_first_counts(store_url: str) -> None:
    async with world(gates(), store=store_url) as there:
        await there.complete("a", YES, hold="10m")
        for hold in ("10m", None):
            assert (await there.complete("a", NO, hold=hold)).outcome == "late"
        assert await unused(there) == [("a", "already_completed", NO)] * 2
        assert await there.result((await there.start("gate", "a")).id) == YES


async def test_F7_an_id_that_was_used_before_can_be_held_for_its_next_wait(store_url: str) -> None:
    async with world(gates(), store=store_url) as there:
        first, second = await there.start("gate", "a"), await there.start("gate", "b")
        await there.complete("a", YES)
        await there.advance("1h")
        assert [await there.result(run.id) for run in (first, second)] == [YES, "late"]
        for signal in ("a", "b"):
            assert (await there.complete(signal, NO, hold="10m")).outcome == "queued"
            assert await there.result((await there.start("gate", signal)).id) == NO


async def test_F5_F7_after_a_collision_a_hold_must_say_which_run_is_meant_too(store_url: str) -> None:
    async with world(gates(), store=store_url) as there:
        first, second = await there.start("gate", "a"), await there.start("gate", "a")
        assert (await there.get(second.id)).status == "failed"
        with pytest.raises(bide.SignalCollisionError):
            await there.complete("a", YES, hold="10m")
        assert (await there.complete("a", YES, hold="10m", run_id=first.id)).outcome == "woke"


async def test_F7_of_two_runs_that_wait_for_one_id_the_first_takes_what_was_held(store_url: str) -> None:
    async with world(gates(), store=store_url) as there:
        await there.complete("a", YES, hold="10m")
        first = await there.start("gate", "a", settle=False)
        second = await there.start("gate", "a", settle=False)
        await there.settle()
        statuses = {(await there.get(run.id)).status for run in (first, second)}
        assert statuses == {"completed", "waiting"}


async def test_F7_an_answer_that_is_held_for_one_run_goes_to_no_other(store_url: str) -> None:
    async with world(gates(), store=store_url) as there:
        await there.complete("a", YES, hold="10m", run_id="run_of_mine")
        run = await there.start("gate", "a")
        assert (await there.get(run.id)).status == "waiting"
        assert await unused(there) == [("a", "not_found", YES)]


async def test_F7_W11_a_held_answer_of_somebody_else_than_the_assignee_is_not_taken(store_url: str) -> None:
    async with world(gates(), store=store_url) as there:
        await there.complete("a", 1, by="bob", hold="10m")
        await there.complete("b", 2, by="ann", hold="10m")
        denied, answered = await there.start("private", "a"), await there.start("private", "b")
        assert (await there.get(denied.id)).status == "waiting"
        assert "await_answer_denied" in await ledger_names(there, denied.id)
        assert await unused(there) == [("a", "denied", 1)]
        assert await there.result(answered.id) == 2


async def test_F7_law_8_a_held_answer_stays_in_its_workspace(store_url: str) -> None:
    async with world(gates(), store=store_url) as there:
        await there.client("other").complete("a", NO, hold="10m")
        run = await there.start("gate", "a")
        assert (await there.get(run.id)).status == "waiting"
        await there.complete("a", YES)
        assert await there.result(run.id) == YES
        other = await there.client("other").start("gate", "a")
        await there.settle()
        assert await other.result() == NO


async def test_F7_law_8_ids_with_separators_of_two_workspaces_are_not_mixed_up(store_url: str) -> None:
    async with world(gates(), store=store_url) as there:
        await there.client("a:b").complete("c", YES, hold="10m")
        await there.client("a").complete("b:c", NO, hold="10m")
        for workspace, signal, answer in (("a:b", "c", YES), ("a", "b:c", NO)):
            run = await there.client(workspace).start("gate", signal)
            await there.settle()
            assert await run.result() == answer


async def test_G4_what_a_definition_hides_of_a_held_answer_is_not_in_its_ledger(store_url: str) -> None:
    async with world(gates(), store=store_url) as there:
        await there.complete("a", {"card": "4111-canary"}, hold="10m")
        run = await there.start("secret", "a")
        assert (await there.get(run.id)).status == "completed"
        assert "canary" not in str(await there.ledger(run.id))


async def test_F7_law_1_an_answer_that_a_lost_race_took_is_kept_for_an_operator(store_url: str) -> None:
    app = gates()

    @app.workflow("race")
    async def race(step: bide.Step) -> Any:
        await step.sleep("minute", "1m")
        go = step.receive("go", "go", timeout="1h")
        gate = step.wait_for_signal("gate", signal="a", timeout="1h")
        return "go" if await step.first("race", go, gate) is go else "gate"

    async with world(app, store=store_url) as there:
        run = await there.start("race")
        await there.signal(run.id, "go")
        await there.complete("a", YES, hold="10m")
        await there.advance("1m")
        assert await there.result(run.id) == "go"
        assert await unused(there) == [("a", "withdrawn", YES)]


@pytest.mark.parametrize("hold", ["0s", "-1m", "soon", 0, -5])
async def test_F7_an_impossible_hold_is_refused_at_once(hold: Any) -> None:
    async with world(gates()) as there:
        with pytest.raises(bide.BadInput, match="hold"):
            await there.complete("a", YES, hold=hold)


async def test_S12_an_answer_that_was_refused_is_kept_with_its_reason(store_url: str) -> None:
    async with world(gates(), store=store_url) as there:
        await there.complete("nobody", 1, check=False)
        run = await there.start("gate", "a")
        await there.complete("a", 2, check=False)
        await there.complete("a", YES)
        await there.complete("a", NO, check=False)
        [wait] = await there.waits(run_id=run.id, status=None)
        assert sorted(await unused(there), key=str) == [
            ("nobody", "not_found", 1),
            (wait.id, "already_completed", NO),
            (wait.id, "invalid_payload", 2),
        ]


async def test_D11_the_audit_finds_nothing_wrong_with_held_answers(store_url: str) -> None:
    async with world(gates(), store=store_url) as there:
        for signal in ("a", "b", "c"):
            await there.complete(signal, YES, hold="10m", dedup_key="k")
        await there.start("gate", "a")
        assert await there.runtime.store.audit() == []
        await there.advance("1h")
        assert await there.runtime.store.audit() == []
        assert await there.runtime.store.due_chores(9) == []


async def test_H2_a_hold_under_an_idempotency_key_is_remembered_seven_days_and_then_forgotten(store_url: str) -> None:
    async with world(gates(), store=store_url) as there:
        http = there.http()
        first, again, other = [
            await http.post(
                "/v1/signals/a/complete",
                json={"data": data, "hold": "1h"},
                headers={"Idempotency-Key": "k"},
            )
            for data in (YES, YES, NO)
        ]
        assert (first.status_code, first.json()["outcome"]) == (202, "queued")
        assert again.json() == {**first.json(), "duplicate": True}
        assert other.status_code == 409
        assert await there.result((await there.start("gate", "a")).id) == YES
        await there.advance("7d")
        fresh = await http.post(
            "/v1/signals/a/complete", json={"data": NO, "hold": "1h"}, headers={"Idempotency-Key": "k"}
        )
        assert (fresh.status_code, fresh.json()["duplicate"]) == (202, False)
        assert await there.runtime.store.audit() == []
