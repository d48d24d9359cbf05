"""Interactions, the outbox and dead letters: found, changed and claimed as the interface says."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from bide.core.commands import Done, Receipt, Unknown
from bide.core.records import Chore, RunId, wait_id
from bide.core.requests import (
    Agenda,
    Amend,
    Beat,
    Fail,
    HandTask,
    SettleChore,
    SettleDeadLetter,
)
from bide.stores.interface import InteractionFilter, Store, WaitFilter
from bide.testing.store_contract.making import (
    HOUR,
    MINUTE,
    a_cancel,
    a_change,
    a_question,
    an_answer,
    an_unused,
    asking,
    outcomes,
    parked,
    reply_to,
    row,
    waiting_for,
)
from bide.testing.store_contract.rows import visible_rows
from bide.testing.world import VirtualClock

ODD = '"it\'s {odd}, \\"quoted\\", C:\\\\new and 🦊"'
TOLD = '{"notify":"mail","title":"Well?"}'


async def listed(store: Store, **filter: object) -> list[tuple[str, str]]:
    found = await store.interactions(InteractionFilter(**filter), after=None, limit=99)  # type: ignore[arg-type]
    return [(row.id, row.status) for row, _ in found]


class Answers:
    async def test_an_interaction_comes_back_as_it_went_in_with_its_wait(
        self, store: Store, clock: VirtualClock
    ) -> None:
        details = '{"assignee":"ann","group":"leads","channel":"chat","title":"Well?"}'
        await asking(store, a_question(payload=ODD, details=details, timeout=HOUR))

        [(found, wait)] = await store.interactions(InteractionFilter(), after=None, limit=9)

        assert (found.id, found.item, found.status, found.payload) == ("int_1_1_0", 0, "waiting", ODD)
        assert (found.assignee, found.group, found.channel) == ("ann", "leads", "chat")
        assert (found.opened_at, found.closed_at, found.answer, found.answers) == (clock(), None, None, "[]")
        assert (wait.id, wait.details, wait.deadline) == ("wait_1_1", details, clock() + HOUR)

    async def test_an_answer_is_kept_and_lets_the_run_go_on(self, store: Store, clock: VirtualClock) -> None:
        await asking(store)

        done = await store.execute([an_answer(ODD, "ann")])

        assert outcomes(done) == ["woke"]
        assert (await row(store)).status == "ready"
        [(found, wait)] = await store.interactions(InteractionFilter(run_id="run_1"), after=None, limit=9)
        assert (found.status, found.answer, found.answered_by, found.closed_at) == ("completed", ODD, "ann", clock())
        assert (wait.status, wait.received, wait.expected) == ("completed", 1, 1)

    async def test_the_same_answer_again_changes_nothing(self, store: Store) -> None:
        await asking(store)
        await store.execute([an_answer("true", "ann", dedup_key="k")])
        before = await visible_rows(store)
        again = await store.execute([an_answer("true", "ann", dedup_key="k"), an_answer("true", "ann")])
        assert outcomes(again) == ["duplicate", "duplicate"]
        assert await visible_rows(store) == before

    async def test_answers_of_one_batch_see_each_other(self, store: Store) -> None:
        await asking(store, a_question(details='{"quorum":2}'))
        done = await store.execute([an_answer("1", "ann"), an_answer("2", "ben"), an_answer("3", "cy")])
        assert outcomes(done) == ["queued", "woke", "conflict"]

    async def test_a_question_and_its_answer_of_one_batch_see_each_other(self, store: Store) -> None:
        await asking(store, a_question(details='{"quorum":2}'))
        hand = HandTask(workspace="default", run_id=RunId("run_1"), no=1, item=0, action="claim", by="ann")
        await store.execute([an_answer("1", "ann"), hand, a_cancel()])
        assert await listed(store) == [("int_1_1_0", "cancelled")]

    async def test_the_end_of_a_run_closes_its_interactions_and_no_others(self, store: Store) -> None:
        await asking(store, a_question(), a_question("other"))
        await asking(store, run_id="run_2")
        await store.execute([an_answer()])
        await store.execute([a_cancel()])
        assert await listed(store) == [
            ("int_1_1_0", "completed"),
            ("int_1_2_0", "cancelled"),
            ("int_2_1_0", "waiting"),
        ]

    async def test_interactions_are_found_by_every_filter_and_in_pages(self, store: Store) -> None:
        for number, details in enumerate(('{"assignee":"ann"}', '{"group":"leads"}', '{"channel":"chat"}'), start=1):
            await asking(store, a_question(details=details), run_id=f"run_{number}")
        await asking(store, run_id="run_4", workspace="other")
        await store.execute([an_answer(by="ann")])

        assert [id for id, _ in await listed(store, assignee="ann")] == ["int_1_1_0"]
        assert [id for id, _ in await listed(store, group="leads")] == ["int_2_1_0"]
        assert [id for id, _ in await listed(store, channel="chat")] == ["int_3_1_0"]
        assert [id for id, _ in await listed(store, run_id="run_2")] == ["int_2_1_0"]
        assert [id for id, _ in await listed(store, run_id="run_2", no=2)] == []
        assert [id for id, _ in await listed(store, run_id="run_2", no=1, item=0)] == ["int_2_1_0"]
        assert [id for id, _ in await listed(store, workspace="other")] == ["int_4_1_0"]
        open_ones = ("pending", "dispatching", "waiting")
        assert len(await listed(store, workspace="default", statuses=open_ones)) == 2
        assert await listed(store, statuses=("completed",)) == [("int_1_1_0", "completed")]
        assert await listed(store, definition="nothing") == []
        pages = []
        after: tuple[str, int, int] | None = None
        while page := await store.interactions(InteractionFilter(workspace="default"), after=after, limit=2):
            pages.append([found.id for found, _ in page])
            after = (page[-1][0].run_id, page[-1][0].no, page[-1][0].item)
        assert pages == [["int_1_1_0", "int_2_1_0"], ["int_3_1_0"]]

    async def test_waits_are_found_by_what_they_carry(self, store: Store) -> None:
        await parked(store, "run_1", park=waiting_for("go", details='{"channel":"chat","assignee":"ann"}'))
        await asking(store, a_question(details='{"group":"leads"}'), run_id="run_2")

        async def found(**filter: object) -> list[str]:
            wanted = WaitFilter(**filter)  # type: ignore[arg-type]
            return [wait.id for wait in await store.waits(wanted, after=None, limit=9)]

        assert await found(channel="chat") == await found(assignee="ann") == await found(kind="signals") == ["wait_1_1"]
        assert await found(group="leads") == await found(kind="task") == ["wait_2_1"]
        assert await found(run_id="run_2", no=2) == []
        assert await found(definition="nothing") == []
        assert len(await found(definition=(await row(store)).definition)) == 2

    async def test_a_changed_deadline_is_the_one_that_fires(self, store: Store, clock: VirtualClock) -> None:
        await asking(store, a_question(timeout=HOUR))
        await store.execute([a_change(Amend(moves=True, deadline=2 * HOUR, assigns=True, assignee="ben"))])
        clock.advance(HOUR)
        assert (await store.fire_timers(9)).replies == []
        [wait] = await store.waits(WaitFilter(), after=None, limit=9)
        assert (wait.deadline, wait.due_at) == (clock() + HOUR, clock() + HOUR)
        assert [id for id, _ in await listed(store, assignee="ben")] == ["int_1_1_0"]
        clock.advance(HOUR)
        await store.fire_timers(9)
        assert await listed(store) == [("int_1_1_0", "timed_out")]

    async def test_reminders_come_at_their_times_and_leave_the_run_parked(
        self, store: Store, clock: VirtualClock
    ) -> None:
        agenda = Agenda(reminders=(MINUTE,), escalate=((2 * MINUTE, "group:leads"),), heartbeat=HOUR)
        await asking(store, a_question(agenda=agenda, timeout=2 * HOUR))
        for _ in range(2):
            clock.advance(MINUTE)
            assert (await store.fire_timers(9)).replies == [Done(True)]
            assert (await store.fire_timers(9)).replies == []
        assert (await row(store)).status == "waiting"
        assert [id for id, _ in await listed(store, group="leads")] == ["int_1_1_0"]
        await store.execute([a_change(Beat())])
        clock.advance(HOUR)
        await store.fire_timers(9)
        assert await listed(store) == [("int_1_1_0", "failed")]

    async def test_a_failed_wait_says_so_to_its_run(self, store: Store) -> None:
        await asking(store)
        await store.execute([a_change(Fail())])
        assert (await row(store)).status == "ready"
        assert await listed(store) == [("int_1_1_0", "failed")]
        assert await reply_to(store, a_change(Fail())) == Done(False, "failed")

    async def test_of_refused_answers_to_one_wait_the_newest_hundred_are_kept(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """S12."""
        await asking(store)
        await store.execute([an_answer()])
        for number in range(103):
            clock.advance(MINUTE)
            await store.execute([an_answer(f"{number}")])
        for number in range(103):
            await store.execute([an_unused(f"msg_{number}", clock())])
        assert await store.trim_unused(99 * HOUR, 1000, 2) == 2
        assert await store.trim_unused(99 * HOUR, 1000, 50) == 1
        kept = await store.unused("default", limit=999)
        answers = [arrival.payload for arrival in kept if arrival.target == "int_1_1_0"]
        assert answers == [str(number) for number in range(3, 103)]
        assert len(kept) == 203

    # -- the outbox

    async def _promised(self, store: Store, run_id: str = "run_1") -> str:
        await asking(store, a_question(agenda=Agenda(), details=TOLD), run_id=run_id)
        return f"notify:{wait_id(run_id, 1)}:opened:0"

    async def test_a_chore_is_claimed_by_one_and_due_again_after_its_lease(
        self, store: Store, rival: Store, clock: VirtualClock
    ) -> None:
        id = await self._promised(store)
        first, second = await asyncio.gather(store.claim_chores(9, MINUTE), rival.claim_chores(9, MINUTE))
        assert [(chore.id, chore.tries) for chore in (*first, *second)] == [(id, 1)]
        assert await store.claim_chores(9, MINUTE) == []
        clock.advance(MINUTE)
        [again] = await rival.claim_chores(9, MINUTE)
        assert (again.id, again.tries, again.due_at) == (id, 2, clock() + MINUTE)

    async def test_a_claim_takes_no_more_than_asked_for_and_the_earliest_first(
        self, store: Store, clock: VirtualClock
    ) -> None:
        ids = []
        for number in (1, 2, 3):
            ids.append(await self._promised(store, f"run_{number}"))
            clock.advance(MINUTE)
        assert [chore.id for chore in await store.claim_chores(2, HOUR)] == ids[:2]
        assert [chore.id for chore in await store.claim_chores(2, HOUR)] == ids[2:]

    async def test_a_try_that_was_taken_over_settles_nothing(self, store: Store, clock: VirtualClock) -> None:
        await self._promised(store)
        [late] = await store.claim_chores(9, MINUTE)
        clock.advance(MINUTE)
        [taken] = await store.claim_chores(9, MINUTE)
        assert await reply_to(store, _settled(late, "dead")) == Done(False, "another process took it over")
        assert await reply_to(store, _settled(taken, "done")) == Done(True)
        assert await reply_to(store, _settled(taken, "again")) == Done(False, "another process took it over")
        clock.advance(HOUR)
        assert await store.claim_chores(9, MINUTE) == []

    async def test_a_dead_letter_is_kept_until_somebody_decides(self, store: Store, clock: VirtualClock) -> None:
        id = await self._promised(store)
        [chore] = await store.claim_chores(9, MINUTE)
        await store.execute([_settled(chore, "dead")])
        [letter] = await store.dead_letters("default", after=None, limit=9)
        assert (letter.id, letter.run_id, letter.error, letter.tries, letter.at) == (id, "run_1", ODD, 1, clock())
        assert await store.dead_letters("other", after=None, limit=9) == []
        assert await store.dead_letters("default", after=(letter.at, letter.id), limit=9) == []
        settle = SettleDeadLetter(workspace="default", run_id=RunId("run_1"), id=id, action="retry")
        assert isinstance(await reply_to(store, replace(settle, workspace="other")), Unknown)
        both = await store.execute([settle, settle])
        assert both.replies == [Done(True), Unknown(id)]
        [again] = await store.claim_chores(9, MINUTE)
        assert (again.id, again.tries, again.data) == (id, 1, chore.data)

    async def test_the_last_two_answers_of_a_quorum_from_two_processes_complete_it_once(
        self, store: Store, rival: Store
    ) -> None:
        await asking(store, a_question(details='{"quorum":2}'))
        done = await asyncio.gather(store.execute([an_answer("1", "ann")]), rival.execute([an_answer("2", "ben")]))
        replies = [reply for each in done for reply in each.replies]
        assert sorted(reply.outcome for reply in replies if isinstance(reply, Receipt)) == ["queued", "woke"]


def _settled(chore: Chore, outcome: str) -> SettleChore:
    return SettleChore(
        workspace="default",
        run_id=chore.run_id,
        chore=chore,
        outcome=outcome,  # type: ignore[arg-type]  # one of them
        delay=MINUTE,
        error=ODD,
    )
