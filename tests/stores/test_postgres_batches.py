"""Batches on PostgreSQL: rivals, poison, locks, and what the hot paths cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg
import pytest
from msgspec.structs import replace

from bide.core.batch import Changes
from bide.core.commands import Complete, DuplicateRun, EventReceipt, Failed, NewWait, Started, Suspend
from bide.core.records import RunId
from bide.stores.interface import Store, WaitFilter
from bide.stores.postgres import PostgresStore, ahead, batches, tables
from bide.stores.postgres.arrays import array
from bide.stores.postgres.sealed import PLAIN
from bide.stores.postgres.sessions import Connection
from bide.stores.postgres.tables import Known, parts_of
from bide.stores.postgres.transactions import Transaction
from bide.testing.store_contract.making import (
    HOUR,
    MINUTE,
    WORKSPACE,
    a_child,
    a_commit,
    a_signal,
    a_start,
    an_event,
    an_offer,
    ending,
    joining,
    kinds,
    listening_for,
    outcomes,
    parked,
    reply_to,
    row,
    running,
    started,
    told,
    waiting_for,
    woken,
)
from bide.testing.world import VirtualClock
from tests.support.postgres import PostgresServer, chosen_postgres, connect, split_schema, temporary_folder

T = TypeVar("T")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def store(postgres_used_url: str, clock: VirtualClock) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_used_url, now=clock, hints=False, migrate=True)
    await store.open()
    yield store
    assert await store.audit() == []
    await store.close()


@pytest.fixture
async def rival(store: Store, postgres_used_url: str) -> AsyncIterator[Connection]:
    """A connection of somebody else, whose search path is the store's schema."""
    connection = await connect(postgres_used_url)
    yield connection
    await connection.close()


async def until_blocked(rival: Connection, call: asyncio.Task[T]) -> asyncio.Task[T]:
    """Return when somebody waits for the rival's locks."""
    while not await rival.fetchval(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    ):
        assert not call.done(), f"it did not wait: {call}"
    return call


# Rivals


async def test_a_start_waits_for_a_rival_that_takes_its_key_and_sees_who_won(store: Store, rival: Connection) -> None:
    await started(store, "run_rival")
    taking = rival.transaction()
    await taking.start()
    await rival.execute(
        "INSERT INTO names (workspace, kind, name, run_id, digest, message_id, created_at)"
        " VALUES ('default', 'correlation', 'order-7', 'run_rival', '', '', now())"
    )
    start = asyncio.create_task(reply_to(store, a_start("run_1", correlation_key="order-7")))
    await until_blocked(rival, start)
    await taking.commit()
    assert await start == DuplicateRun("order-7", RunId("run_rival"))
    assert await store.run("default", "run_1") is None
    await rival.execute("DELETE FROM names")


async def test_a_start_takes_the_key_when_the_rival_gives_up(store: Store, rival: Connection) -> None:
    taking = rival.transaction()
    await taking.start()
    await rival.execute(
        "INSERT INTO names (workspace, kind, name, run_id, digest, message_id, created_at)"
        " VALUES ('default', 'correlation', 'order-7', 'run_rival', '', '', now())"
    )
    start = asyncio.create_task(reply_to(store, a_start("run_1", correlation_key="order-7")))
    await until_blocked(rival, start)
    await taking.rollback()
    assert told(Started, await start).run.id == "run_1"
    assert await store.holder("default", "order-7") == "run_1"


async def test_two_stores_that_start_under_one_key_at_once_start_one_run(
    store: Store, postgres_used_url: str, clock: VirtualClock
) -> None:
    other = PostgresStore(postgres_used_url, now=clock, hints=False)
    await other.open()
    stores = [store, other] * 4
    replies = await asyncio.gather(
        *(reply_to(each, a_start(f"run_{number}", correlation_key="order-7")) for number, each in enumerate(stores))
    )
    winners = [reply.run.id for reply in replies if isinstance(reply, Started)]
    assert len(winners) == 1
    assert {reply.holder for reply in replies if isinstance(reply, DuplicateRun)} == set(winners)
    await other.close()


async def test_a_claim_passes_over_a_run_that_somebody_holds(store: Store, rival: Connection) -> None:
    await started(store, "run_1")
    await started(store, "run_2")
    async with rival.transaction():
        await rival.execute("SELECT id FROM runs WHERE id = 'run_1' FOR NO KEY UPDATE")
        assert set((await store.claim(an_offer())).turns) == {"run_2"}
    assert set((await store.claim(an_offer())).turns) == {"run_1"}


async def test_a_sweep_passes_over_a_run_whose_parent_somebody_holds(
    store: Store, rival: Connection, clock: VirtualClock
) -> None:
    parent = await running(store, "run_parent")
    await store.execute([a_commit(parent, joining(a_child("run_child")))])
    [child] = (await store.claim(an_offer())).turns.values()
    await store.execute([a_commit(child, waiting_for("go", timeout=MINUTE, on_timeout="!fail"))])
    clock.advance(HOUR)
    async with rival.transaction():
        await rival.execute("SELECT id FROM runs WHERE id = 'run_parent' FOR NO KEY UPDATE")
        assert (await store.fire_timers(10)).replies == []
    assert len((await store.fire_timers(10)).replies) == 1
    assert (await row(store, "run_child")).status == "failed"
    assert (await row(store, "run_parent")).status == "ready"


async def test_D6_runs_that_somebody_holds_do_not_keep_a_worker_from_those_behind_them(
    store: Store, rival: Connection, clock: VirtualClock
) -> None:
    """D6: however few slots it has, also where the claims of those in front have ended."""
    for number in range(7):
        await running(store, f"run_{number}")
    clock.advance(2 * MINUTE)
    for number in (8, 9):
        await started(store, f"run_{number}")
    async with rival.transaction():
        await rival.execute("SELECT id FROM runs WHERE id < 'run_8' FOR NO KEY UPDATE")
        assert set((await store.claim(an_offer(slots=3))).turns) == {"run_8", "run_9"}
        assert (await store.claim(an_offer(slots=3))).turns == {}
    assert len((await store.claim(an_offer(slots=3))).turns) == 3


async def test_D6_runs_that_somebody_holds_do_not_keep_timers_behind_theirs_from_being_fired(
    store: Store, rival: Connection, clock: VirtualClock
) -> None:
    for number in range(8):
        await parked(store, f"run_{number}", park=waiting_for("go", timeout=MINUTE))
        clock.advance(timedelta(seconds=1))
    clock.advance(HOUR)
    async with rival.transaction():
        await rival.execute("SELECT id FROM runs WHERE id < 'run_6' FOR NO KEY UPDATE")
        assert len((await store.fire_timers(2)).replies) == 2
        assert (await store.fire_timers(2)).replies == []
    assert len((await store.fire_timers(10)).replies) == 6
    assert {(await row(store, f"run_{number}")).status for number in range(8)} == {"ready"}


async def test_a_worker_looks_past_so_many_held_runs_and_no_further(
    store: Store, rival: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MOST_LOOKS", 3)
    for number in range(9):
        await started(store, f"run_{number}")
    async with rival.transaction():
        await rival.execute("SELECT id FROM runs WHERE id < 'run_4' FOR NO KEY UPDATE")
        assert (await store.claim(an_offer(slots=1))).turns == {}
        assert set((await store.claim(an_offer(slots=2))).turns) == {"run_4", "run_5"}


async def test_old_events_are_trimmed_no_more_at_a_time_than_asked_however_they_are_joined(
    store: Store, rival: Connection, clock: VirtualClock
) -> None:
    """A planner that expects one event reads those that are to go once for each that there is."""
    await store.execute([an_event("evt-0")])
    await rival.execute("ANALYZE events")
    await store.execute([an_event(f"evt-{no}") for no in range(1, 5)])
    clock.advance(HOUR)
    assert await store.trim_events(timedelta(minutes=30), 3) == 3


async def test_a_renewal_waits_for_whoever_writes_the_lease_and_then_says_if_it_is_lost(
    store: Store, rival: Connection
) -> None:
    kept, lost = await running(store, "run_1"), await running(store, "run_2")
    claims = {kept.run.id: kept.run.epoch, lost.run.id: lost.run.epoch}
    writing = rival.transaction()
    await writing.start()
    await rival.execute("SELECT run_id FROM queue WHERE run_id = 'run_1' FOR UPDATE")
    await rival.execute("UPDATE queue SET epoch = epoch + 1 WHERE run_id = 'run_2'")
    renewal = asyncio.create_task(asyncio.to_thread(store.renew, "worker-1", claims, MINUTE))
    await until_blocked(rival, renewal)
    await writing.commit()
    assert await renewal == {"run_2"}
    await rival.execute("UPDATE queue SET epoch = epoch - 1 WHERE run_id = 'run_2'")


async def test_leases_are_renewed_while_the_event_loop_is_blocked(store: Store, clock: VirtualClock) -> None:
    turn = await running(store, "run_1")
    clock.advance(timedelta(seconds=59))
    assert store.renew("worker-1", {turn.run.id: turn.run.epoch, RunId("run_none"): 1}, MINUTE) == {"run_none"}
    clock.advance(timedelta(seconds=59))
    assert (await store.claim(an_offer("worker-2"))).turns == {}


# Poison


@pytest.mark.parametrize("poison", ["\x00", "\ud800"], ids=["nul", "lone surrogate"])
async def test_a_command_that_the_database_refuses_fails_alone(store: Store, poison: str) -> None:
    commands = [a_start(f"run_{number}", step=poison if number == 3 else "begin") for number in range(7)]
    done = await store.execute(commands, an_offer(slots=4))
    assert kinds(done) == ["Started"] * 3 + ["Failed"] + ["Started"] * 3
    assert isinstance(told(Failed, done.replies[3]).error, ValueError | asyncpg.PostgresError)
    assert len(done.turns) == 4, "the halves share the slots of the offer"
    assert sum((await store.count_runs("default")).values()) == 6


async def test_a_key_that_is_too_long_for_the_index_fails_alone(store: Store) -> None:
    from random import Random

    key = "".join(Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=10_000))
    done = await store.execute([a_start("run_1"), a_start("run_2", correlation_key=key)])
    assert kinds(done) == ["Started", "Failed"]


@pytest.mark.parametrize("poison", ["\x00", "garbage"], ids=["nul", "no command"])
async def test_what_cannot_be_admitted_is_kept_and_not_met_again(
    store: Store, postgres_used_url: str, poison: str
) -> None:
    """S12: its neighbours are admitted, and so is what comes later."""
    async with store.connection() as connection:
        await store.leave(connection, a_start("run_1"))
        if poison == "garbage":
            table = f'"{split_schema(postgres_used_url)[1]}".intake'
            await connection.execute(f"INSERT INTO {table} (id, command) VALUES ($1, $1)", poison)
        else:
            await store.leave(connection, a_start("run_2", step=poison, correlation_key=f"key {poison}"))
        await store.leave(connection, a_start("run_3"))
    assert kinds(await store.admit(9)) == ["Started", "Done", "Started"]
    [kept] = await store.unused("default", limit=9)
    assert kept.reason.startswith("refused: ")
    assert kept.payload == ('"garbage"' if poison == "garbage" else '{"n":1}')
    assert kinds(await store.admit(9)) == []


@pytest.fixture
async def stubborn(store: Store, postgres_used_url: str) -> AsyncIterator[Connection]:
    """A database that does not let the run `run_2` move."""
    connection = await connect(postgres_used_url)
    yield connection
    await connection.execute("ALTER TABLE runs DROP CONSTRAINT stubborn")
    await connection.close()


async def test_a_run_that_cannot_be_claimed_does_not_keep_its_neighbours(
    store: Store, stubborn: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        await started(store, f"run_{number}")
    await stubborn.execute("ALTER TABLE runs ADD CONSTRAINT stubborn CHECK (id <> 'run_2' OR status <> 'running')")
    claimed = [run_id for _ in range(4) for run_id in (await store.claim(an_offer())).turns]
    assert sorted(claimed) == ["run_0", "run_1", "run_3", "run_4"]
    assert "run_2 is due and is passed over" in caplog.text
    assert (await store.claim(an_offer(slots=1))).turns == {}
    await started(store, "run_5")
    assert list((await store.claim(an_offer(slots=1))).turns) == ["run_5"], "not even where there is one slot"


async def test_a_timer_that_cannot_be_fired_does_not_keep_its_neighbours(
    store: Store, clock: VirtualClock, stubborn: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        await parked(store, f"run_{number}", park=waiting_for("go", timeout=MINUTE))
    await stubborn.execute("ALTER TABLE runs ADD CONSTRAINT stubborn CHECK (id <> 'run_2' OR status = 'waiting')")
    clock.advance(HOUR)
    for _ in range(4):
        await store.fire_timers(9)
    statuses = [(await row(store, f"run_{number}")).status for number in range(5)]
    assert statuses == ["ready", "ready", "waiting", "ready", "ready"]
    assert "run_2 is due and is passed over" in caplog.text


@pytest.mark.parametrize("text", ['a\nb\t"c"\\d', "{}", "null", "NULL", "", " ", "é\u2028\U0001f600", "\x1f\x7f"])
async def test_every_text_comes_back_as_it_was(store: Store, text: str) -> None:
    await store.execute([a_start("run_1", step=text, version="1"), a_start("run_2", step="plain")])
    assert (await row(store, "run_1")).step == text
    assert (await row(store, "run_2")).step == "plain"


# Costs


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The statements since the last look, without BEGIN and COMMIT, which those that come alone do not have."""
    seen: list[str] = []
    fetch, write, write_alone = Transaction.fetch, Transaction.write, Transaction.write_unless_moved

    async def noted(self: Transaction, statement: str, *parameters: object) -> list[asyncpg.Record]:
        seen.append(statement)
        return await fetch(self, statement, *parameters)

    async def noted_write(self: Transaction, *arguments: Any) -> None:
        seen.append("write")
        await write(self, *arguments)

    async def noted_lone_write(self: Transaction, *arguments: Any) -> str:
        seen.append("write unless moved")
        return await write_alone(self, *arguments)

    def take() -> list[str]:
        taken = list(seen)
        seen.clear()
        return taken

    monkeypatch.setattr(Transaction, "fetch", noted)
    monkeypatch.setattr(Transaction, "write", noted_write)
    monkeypatch.setattr(Transaction, "write_unless_moved", noted_lone_write)
    return take


async def test_what_one_wait_costs_in_statements(store: Store, statements: Callable[[], list[str]]) -> None:
    offer = an_offer()
    turn = await running(store, "run_1", offer=offer)
    assert statements() == ["write"], "a start that is handed out at once (the clock is the test's)"
    await store.execute([a_commit(turn, waiting_for("go"))], offer)
    assert statements() == ["lock_versions", "write"], "park"
    turn = await woken(store, "run_1")
    assert statements() == ["select_run_and_waits", "write unless moved"], "a signal to a parked run, and its turn"
    await store.execute([a_commit(turn, ending(), used=turn.inbox)], offer)
    assert statements() == ["lock_versions", "write"], "end"


async def test_a_batch_of_many_costs_as_many_statements_as_one(
    store: Store, statements: Callable[[], list[str]]
) -> None:
    for number in range(5):
        await parked(store, f"run_{number}")
    statements()
    done = await store.execute([a_signal(f"run_{number}") for number in range(5)], an_offer())
    assert outcomes(done) == ["woke"] * 5
    assert statements() == ["lock_runs", "select_waits", "write"]


async def three_that_listen(store: Store) -> None:
    for number in range(3):
        turn = await running(store, f"run_{number}", style="workflow")
        await store.execute([listening_for(turn, "order.shipped", timeout=HOUR)])


async def test_F8_what_an_event_does_to_very_many_runs_is_written_part_by_part(
    store: Store, statements: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MANY_RUNS", 3)
    await three_that_listen(store)
    statements()
    done = await store.execute([an_event()], an_offer(slots=2))
    assert told(EventReceipt, done.replies[0]).resumed == 3
    assert "write" not in statements()
    assert [[step.key for step in turn.steps] for turn in done.turns.values()] == [["order.shipped"]] * 2
    statuses = sorted((await store.statuses([RunId(f"run_{number}") for number in range(3)])).values())
    assert statuses == ["ready", "running", "running"]


async def test_F8_a_part_that_the_database_refuses_undoes_those_before_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MANY_RUNS", 3)
    await three_that_listen(store)
    done = await store.execute([an_event()], an_offer("worker \x00"))
    assert (kinds(done), done.turns) == (["Failed"], {})
    assert await store.count_runs(WORKSPACE) == {"waiting": 3}


async def test_answers_to_many_signal_ids_cost_two_statements(
    store: Store, statements: Callable[[], list[str]]
) -> None:
    ids = [f"approval-{number}" for number in range(5)]
    for number, id in enumerate(ids):
        turn = await running(store, f"run_{number}", style="workflow", step="body")
        opens = (NewWait(key="gate", kind="signal", names=(id,), timeout=HOUR),)
        await store.execute([replace(a_commit(turn, Suspend()), opens=opens)])
    statements()
    answers = [
        Complete(workspace=WORKSPACE, signal_id=id, message_id=f"msg_{id}", data="7", digest="of 7") for id in ids
    ]

    assert outcomes(await store.execute(answers[:4])) == ["woke"] * 4
    assert statements() == ["select_answered", "write unless moved"]

    assert outcomes(await store.execute(answers[3:])) == ["late", "woke"]
    assert statements()[:3] == ["select_answered", "select_names", "lock_runs"], "one that is answered already"


async def test_nothing_due_costs_one_statement(store: Store, statements: Callable[[], list[str]]) -> None:
    await store.claim(an_offer())
    assert statements() == ["select_due_run"]
    await store.fire_timers(10)
    assert statements() == ["lock_due_timers"]


async def test_a_look_for_the_next_due_moment_is_planned_once(store: PostgresStore) -> None:
    for _ in range(10):
        await store.until_due(frozenset({"default"}))
    settled = await store._transactions._sessions.settled()
    plans = "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement LIKE '-- The earliest%'"
    assert [tuple(row) for row in await settled.fetch(plans)] == [(10, 0)]


async def test_a_look_takes_another_connection_where_that_one_is_lost_or_taken(
    store: PostgresStore, rival: Connection
) -> None:
    transactions, queues = store._transactions, frozenset({"default"})
    await store.execute([a_start()])
    settled = await transactions._sessions.settled()
    transactions._is_alone = True
    assert await store.until_due(queues) == timedelta(0), "a delivery is under way there"
    transactions._is_alone = False
    await rival.execute("SELECT pg_terminate_backend($1)", settled.get_server_pid())
    assert await store.until_due(queues) == timedelta(0), "lost"
    assert await store.until_due(queues) == timedelta(0)
    assert await transactions._sessions.settled() is not settled


async def test_a_claim_of_one_run_costs_two_statements(store: Store, statements: Callable[[], list[str]]) -> None:
    await parked(store, "run_1")
    await store.execute([a_signal("run_1")])
    statements()
    [turn] = (await store.claim(an_offer())).turns.values()
    assert statements() == ["select_due_run", "write unless moved"]
    assert [signal.name for signal in turn.inbox] == ["go"]
    assert turn.woken_by is not None


async def test_what_comes_alone_and_is_not_that_simple_is_done_under_locks(
    store: Store, statements: Callable[[], list[str]]
) -> None:
    await started(store, "run_1")
    await started(store, "run_2")
    statements()
    assert len((await store.claim(an_offer())).turns) == 2
    assert statements() == ["select_due_run", "lock_due_queue", "lock_free_runs", "write"]
    await store.execute([a_signal("run_none")])
    assert statements()[:2] == ["select_run_and_waits", "lock_runs"]
    await store.execute([a_signal("run_1", dedup_key="d-1")])
    assert statements()[0] == "lock_versions"


async def test_a_signal_alone_brings_the_whole_inbox_to_the_turn(store: Store) -> None:
    await parked(store, "run_1")
    for name in ("other", "another"):
        await store.execute([a_signal("run_1", name=name)])
    turn = await woken(store, "run_1")
    assert [signal.name for signal in turn.inbox] == ["other", "another", "go"]


# What is read without a lock


async def test_whoever_changes_a_wait_writes_the_row_of_its_run(store: Store) -> None:
    """A delivery that comes alone tells by that row whether anything has moved."""
    await parked(store, "run_1", park=waiting_for("go", timeout=HOUR))
    [wait] = await store.waits(WaitFilter(), after=None, limit=1)
    changes, known = Changes(), Known({RunId("run_1"): await row(store, "run_1")}, {(wait.run_id, wait.no): wait})
    changes.waits_updated[(wait.run_id, wait.no)] = replace(wait, due_at=None)
    assert [name for name, _ in parts_of(changes, known, PLAIN)] == ["update_runs", "update_waits"]


async def test_a_signal_alone_waits_for_a_rival_and_then_sees_what_it_did(store: Store, rival: Connection) -> None:
    await parked(store, "run_1")
    writing = rival.transaction()
    await writing.start()
    await rival.execute("UPDATE runs SET updated_at = updated_at WHERE id = 'run_1'")
    signal = asyncio.create_task(store.execute([a_signal("run_1")]))
    await until_blocked(rival, signal)
    await writing.commit()
    assert outcomes(await signal) == ["woke"]
    assert len(await store.inbox("run_1")) == 1


async def test_what_was_foreseen_is_not_read_again(store: PostgresStore) -> None:
    await parked(store, "run_1")
    trips = store.round_trips
    assert store.foresee(RunId("run_1"))
    assert outcomes(await store.execute([a_signal("run_1")])) == ["woke"]
    assert store.round_trips - trips == 2, "read and written"


async def test_what_was_foreseen_is_used_once_and_for_its_own_run_alone(store: PostgresStore) -> None:
    await parked(store, "run_1")
    await parked(store, "run_2")
    store.foresee(RunId("run_1"))
    trips = store.round_trips
    assert outcomes(await store.execute([a_signal("run_2")])) == ["woke"]
    assert store.round_trips - trips == 3, "one was for the other"
    assert outcomes(await store.execute([a_signal("run_1", name="other")])) == ["queued"]
    assert store.round_trips - trips == 4, "which needs only to be written"
    assert outcomes(await store.execute([a_signal("run_1")])) == ["woke"]
    assert store.round_trips - trips == 6


async def test_what_was_foreseen_too_long_ago_is_read_again(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock would be that of long ago."""
    monkeypatch.setattr(ahead, "AHEAD_SECONDS", -1.0)
    await parked(store, "run_1")
    trips = store.round_trips
    store.foresee(RunId("run_1"))
    assert outcomes(await store.execute([a_signal("run_1")])) == ["woke"]
    assert store.round_trips - trips == 3


async def test_what_moved_after_it_was_foreseen_is_decided_under_locks(
    store: PostgresStore, rival: Connection, statements: Callable[[], list[str]]
) -> None:
    await parked(store, "run_1")
    store.foresee(RunId("run_1"))
    await store._transactions.close()  # the answer is there
    await rival.execute("UPDATE runs SET updated_at = updated_at WHERE id = 'run_1'")
    statements()
    assert outcomes(await store.execute([a_signal("run_1")])) == ["woke"]
    assert statements()[1:] == ["write unless moved", "lock_runs", "select_waits", "write"]
    assert len(await store.inbox("run_1")) == 1


async def test_a_connection_that_is_lost_while_something_is_foreseen_loses_nothing(
    store: PostgresStore, rival: Connection
) -> None:
    await parked(store, "run_1")
    settled = await store._transactions._sessions.settled()
    await rival.execute("SELECT pg_terminate_backend($1, 5000)", settled.get_server_pid())
    store.foresee(RunId("run_1"))
    assert outcomes(await store.execute([a_signal("run_1")])) == ["woke"]
    assert len(await store.inbox("run_1")) == 1
    assert await store._transactions._sessions.settled() is not settled


async def test_nothing_is_foreseen_while_another_is_at_it_nor_behind_a_pooler(store: PostgresStore) -> None:
    await parked(store, "run_1")
    assert store.foresee(RunId("run_1"))
    assert not store.foresee(RunId("run_1")), "one at a time"
    assert outcomes(await store.execute([a_signal("run_1", name="other")])) == ["queued"]
    store._transactions._sessions.has_pooler = True
    assert not store.foresee(RunId("run_1"))
    assert outcomes(await store.execute([a_signal("run_1")])) == ["woke"]


async def test_whoever_is_cancelled_while_something_is_foreseen_takes_nobody_along(
    store: PostgresStore, rival: Connection
) -> None:
    """What was asked ahead is for whoever comes next, too: an engine that claims would end with it."""
    await parked(store, "run_1")
    await started(store, "run_2")
    locking = rival.transaction()
    await locking.start()
    await rival.execute("LOCK TABLE runs IN ACCESS EXCLUSIVE MODE")
    store.foresee(RunId("run_1"))
    call = asyncio.create_task(store.execute([a_signal("run_1")]))
    await until_blocked(rival, call)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await locking.rollback()
    assert set((await store.claim(an_offer())).turns) == {"run_2"}
    assert outcomes(await store.execute([a_signal("run_1")])) == ["woke"]


async def test_what_was_foreseen_and_then_cancelled_is_read_again(store: PostgresStore, rival: Connection) -> None:
    await parked(store, "run_1")
    async with rival.transaction():
        await rival.execute("LOCK TABLE runs IN ACCESS EXCLUSIVE MODE")
        store.foresee(RunId("run_1"))
        assert store._transactions._ahead is not None
        asking = await until_blocked(rival, store._transactions._ahead._asking)
        asking.cancel()
    assert outcomes(await store.execute([a_signal("run_1")])) == ["woke"]
    assert store.foresee(RunId("run_1"))


async def test_nobody_waits_long_for_what_was_foreseen_where_the_connection_stands_still(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others may be well. It is taken again when it is."""
    monkeypatch.setattr(ahead, "WAITING_SECONDS", 0.01)
    await parked(store, "run_1")
    sessions, goes_on = store._transactions._sessions, asyncio.Event()
    settled = sessions.settled

    async def standing_still() -> Connection:
        await goes_on.wait()
        return await settled()

    monkeypatch.setattr(sessions, "settled", standing_still)
    store.foresee(RunId("run_1"))
    assert outcomes(await store.execute([a_signal("run_1", name="other")])) == ["queued"]
    assert not store.foresee(RunId("run_1")), "it is still at it"
    goes_on.set()
    await store._transactions.close()
    trips = store.round_trips
    assert outcomes(await store.execute([a_signal("run_1")])) == ["woke"]
    assert store.round_trips - trips <= 2, "alone again"


async def test_a_store_is_closed_while_something_is_foreseen(postgres_used_url: str, clock: VirtualClock) -> None:
    store = PostgresStore(postgres_used_url, now=clock, hints=False, migrate=True)
    await store.open()
    assert store.foresee(RunId("run_1"))
    await store.close()


async def test_the_runs_that_somebody_waits_for_are_looked_up_where_the_server_knows_nothing_of_the_table(
    postgres_url: str, clock: VirtualClock
) -> None:
    """A table that has just been filled has no statistics: read whole, each row would be compared with every id."""
    store = PostgresStore(postgres_url, now=clock, hints=False, migrate=True)
    await store.open()
    connection = await connect(postgres_url)
    await connection.execute("ALTER TABLE runs SET (autovacuum_enabled = off)")
    ids = [f"run_{number:04}" for number in range(2000)]
    await store.execute([a_start(id) for id in ids])
    assert (
        await connection.fetchval(
            "SELECT count(*) FROM pg_stats WHERE schemaname = current_schema() AND tablename = 'runs'"
        )
        == 0
    )
    explain = f"EXPLAIN {store._sql['select_statuses']}"
    plan = "\n".join(line for (line,) in await connection.fetch(explain, array(ids[::5])))
    assert "Index" in plan
    assert "Seq Scan on runs" not in plan, plan
    assert await store.statuses([*map(RunId, ids[:2]), RunId("run_none")]) == dict.fromkeys(ids[:2], "ready")
    await connection.close()
    await store.close()


@pytest.fixture
def quiet_url() -> Iterator[str]:
    """Of a server on which nobody else writes: what is dead for all who look is cleared away at once. A transaction
    that is open in another database keeps it, too, for as long as it has written and not committed."""
    with PostgresServer(chosen_postgres(), temporary_folder(), {"autovacuum": "off"}) as server:
        yield server.url()


async def test_updates_of_runs_stay_on_their_page(quiet_url: str, clock: VirtualClock) -> None:
    store = PostgresStore(quiet_url, now=clock, hints=False, migrate=True)
    await store.open()
    for batch in range(5):
        ids = [f"run_{batch}_{number:03}" for number in range(100)]
        offer = an_offer(slots=100)
        turns = (await store.execute([a_start(id) for id in ids], offer)).turns.values()
        await store.execute([a_commit(turn, waiting_for("go", timeout=HOUR)) for turn in turns], offer)
        turns = (await store.execute([a_signal(id) for id in ids], offer)).turns.values()
        await store.execute([a_commit(turn, ending(), used=turn.inbox) for turn in turns], offer)
    await store.close()  # the server counts what a connection did when it ends
    watcher = await connect(quiet_url)
    all_updates = hot_updates = 0
    try:
        while all_updates < 1_500:
            [(all_updates, hot_updates)] = await watcher.fetch(
                "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'runs'"
            )
    finally:
        await watcher.close()
    assert hot_updates >= 0.9 * all_updates
