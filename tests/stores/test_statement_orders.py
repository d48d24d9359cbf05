"""Calls that meet at one run, in every order in which their statements can happen on a real server.

In each order nothing is lost and nothing happens twice, the audit finds nothing, no transaction is aborted, and answers
and rows are those that the calls would have led to one after the other. Code that breaks a rule of the protocol is
caught: each rule has its mutants.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
import pytest
from msgspec.structs import replace

import bide.stores.postgres.store as store_module
from bide.core import moves, turns
from bide.core.batch import Draft, RowKey, View
from bide.core.commands import AnyCommand, CancelChildren, CommitTurn, NewWait, Once, OnceKey, Reply, Suspend
from bide.core.decide import decide_all
from bide.core.once import KEPT_FOR
from bide.core.plan import Named
from bide.core.records import Run, RunId, Signal, Wait
from bide.core.requests import Answer, LetGo
from bide.stores.interface import Store
from bide.stores.postgres import PostgresStore, batches, transactions
from bide.stores.postgres.arrays import array
from bide.stores.postgres.rows import read_run
from bide.stores.postgres.statements import BEGIN, unless_moved
from bide.stores.postgres.tables import Tables
from bide.testing.store_contract.making import (
    HOUR,
    MINUTE,
    WORKSPACE,
    a_cancel,
    a_child,
    a_commit,
    a_signal,
    a_signal_by_key,
    a_start,
    a_start_or_signal,
    an_offer,
    ended,
    ending,
    going_on,
    joining,
    parked,
    running,
    started,
    waiting_for,
    woken,
)
from bide.testing.world import VirtualClock
from tests.support.transitions import (
    Call,
    Story,
    Tried,
    admitting,
    claiming,
    deleting_ended,
    ending_leases,
    executing,
    firing_timers,
    renewing,
    try_orders,
)

ALL = os.environ.get("BIDE_ORDERS") == "all"
CAP = 1_000_000 if ALL else 300  # no pair has that many
SAMPLES = 24
KEY = "order-7"
Mutation: TypeAlias = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Told:
    story: Story
    tales: frozenset[str]
    """Every way in which it may end."""


PAIRS: dict[str, Told] = {}
TRIPLES: dict[str, Told] = {}


def told(stories: dict[str, Told], *tales: str) -> Callable[[Story], Story]:
    def tell(story: Story) -> Story:
        name = str(getattr(story, "__name__", story)).replace("_", " ")
        stories[name] = Told(story, frozenset(tales))
        return story

    return tell


# Park and signal


@told(
    PAIRS,
    "park committed, signal queued: run_1 ready",
    "park committed, signal woke: run_1 ready",
)
async def a_park_and_a_signal(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    turn = await running(store)
    return [executing("park", a_commit(turn, waiting_for("go"))), executing("signal", a_signal())]


@told(
    PAIRS,
    "park committed+got run_1, signal queued: run_1 running",
    "park committed, signal woke+got run_1: run_1 running",
)
async def a_park_with_unread_signals_and_a_signal(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    turn = await running(store)
    await store.execute([a_signal(), a_signal(name="other")])
    park = waiting_for("go", timeout=HOUR, seen=(1,))
    return [
        executing("park", a_commit(turn, park, keep=True), offer=an_offer("w-1")),
        executing("signal", a_signal(), offer=an_offer("w-2")),
    ]


# Timeout and signal


@told(
    PAIRS,
    "timers done, signal queued: run_1 ready",
    "timers nothing, signal woke: run_1 ready",
)
async def a_timeout_and_a_signal(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await parked(store, park=waiting_for("go", timeout=HOUR))
    clock.advance(HOUR)
    return [firing_timers(), executing("signal", a_signal())]


@told(
    PAIRS,
    "timers done, signal no_target: run_1 failed",
    "timers nothing, signal woke: run_1 ready",
)
async def a_timeout_that_fails_the_run_and_a_signal(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await parked(store, park=waiting_for("go", timeout=HOUR, on_timeout="!fail"), correlation_key=KEY)
    clock.advance(HOUR)
    return [firing_timers(), executing("signal", a_signal())]


@told(
    PAIRS,
    "one done+got run_1, other nothing: run_1 running",
    "one nothing, other done+got run_1: run_1 running",
)
async def a_timeout_and_the_same_timeout(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await parked(store, park=waiting_for("go", timeout=HOUR))
    clock.advance(HOUR)
    return [firing_timers("one", an_offer("w-1")), firing_timers("other", an_offer("w-2"))]


# Cancel


@told(
    PAIRS,
    "cancel cancelled, signal no_target: run_1 cancelled",
    "cancel cancelled, signal woke: run_1 cancelled",
)
async def a_cancel_and_a_signal(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await parked(store, park=waiting_for("go", timeout=HOUR))
    return [executing("cancel", a_cancel()), executing("signal", a_signal())]


@told(
    PAIRS,
    "cancel cancelled, signal queued: run_1 ready",
    "cancel cancelled, signal woke: run_1 ready",
)
async def a_cancel_with_clean_up_and_a_signal(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await parked(store, cleanup_seconds=60.0)
    return [executing("cancel", a_cancel()), executing("signal", a_signal())]


@told(
    PAIRS,
    "park committed, cancel cancelled: run_1 cancelled",
    "park stale, cancel cancelled: run_1 cancelled",
)
async def a_park_and_a_cancel(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    turn = await running(store)
    return [
        executing("park", a_commit(turn, waiting_for("go", timeout=HOUR))),
        executing("cancel", a_cancel()),
    ]


@told(
    PAIRS,
    "cancel cancelled, timers done: run_1 cancelled",
    "cancel cancelled, timers nothing: run_1 cancelled",
)
async def a_cancel_and_a_timeout(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await parked(store, park=waiting_for("go", timeout=HOUR))
    clock.advance(HOUR)
    return [executing("cancel", a_cancel()), firing_timers()]


# Children. Locks are taken in the order of ids: one child comes before its parent in it, the other after.


async def a_family(store: Store, *children: str, **changes: object) -> dict[RunId, Call]:
    """A parent that waits for its running children, and the calls that end those."""
    parent = await running(store, "run_m")
    join = joining(*map(a_child, children), **changes)
    done = await store.execute([a_commit(parent, join)], an_offer())
    return {id: executing(id, a_commit(turn, ending())) for id, turn in done.turns.items()}


@told(
    PAIRS,
    "run_a committed, run_z committed: run_a completed, run_m ready, run_z completed",
)
async def the_last_two_children_end(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    return list((await a_family(store, "run_a", "run_z")).values())


@told(
    PAIRS,
    "run_a committed, run_n committed: run_a completed, run_m waiting, run_n completed, run_z running",
)
async def two_of_three_children_end(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    return list((await a_family(store, "run_a", "run_n", "run_z")).values())[:2]


@told(
    PAIRS,
    "run_a committed, timers done: run_a completed, run_m ready",
    "run_a committed, timers nothing: run_a completed, run_m ready",
)
async def the_last_child_ends_and_the_join_times_out(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    family = await a_family(store, "run_a", timeout=HOUR, cancel_children=True)
    clock.advance(HOUR)
    return [*family.values(), firing_timers()]


@told(
    PAIRS,
    "run_z committed, timers done: run_a running, run_m failed, run_z completed",
    "run_z committed, timers nothing: run_a running, run_m waiting, run_z completed",
)
async def a_child_ends_and_the_join_fails_the_parent(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    family = await a_family(store, "run_a", "run_z", timeout=HOUR, on_timeout="!fail")
    clock.advance(HOUR)
    return [family[RunId("run_z")], firing_timers()]


@told(
    PAIRS,
    "run_z committed, cancel cancelled: run_m cancelled, run_z completed",
)
async def the_last_child_ends_and_the_parent_is_cancelled(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    family = await a_family(store, "run_z")
    return [*family.values(), executing("cancel", a_cancel("run_m"))]


@told(
    PAIRS,
    "run_a committed, cancel found it final: run_a completed, run_m ready",
    "run_a stale, cancel cancelled: run_a cancelled, run_m ready",
)
async def a_child_ends_and_is_cancelled(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    family = await a_family(store, "run_a")
    return [*family.values(), executing("cancel", a_cancel("run_a"))]


@told(
    PAIRS,
    "run_a committed, park committed: run_a completed, run_b ready, run_m waiting",
)
async def a_late_child_ends_and_the_parent_parks_again(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    family = await a_family(store, "run_a", timeout=HOUR)
    clock.advance(HOUR)
    [turn] = (await store.fire_timers(1, an_offer())).turns.values()
    return [*family.values(), executing("park", a_commit(turn, joining(a_child("run_b"))))]


@told(
    PAIRS,
    "suspend committed, run_a committed: run_a completed, run_m ready",
)
async def a_child_of_a_workflow_ends_and_the_parent_suspends(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    """The child was started by a commit with which the parent went on."""
    turn = await running(store, "run_m", style="workflow", step="body")
    opens = (NewWait(key="ask", kind="children", child=a_child("run_a"), timeout=HOUR),)
    invoke = replace(a_commit(turn, going_on("body"), keep=True), opens=opens)
    turns = (await store.execute([invoke], an_offer())).turns
    return [
        executing("suspend", a_commit(turns[RunId("run_m")], Suspend())),
        executing("run_a", a_commit(turns[RunId("run_a")], ending())),
    ]


@told(
    PAIRS,
    "spawn committed, signal no_target: run_a ready, run_m waiting",
    "spawn committed, signal queued: run_a ready, run_m waiting",
)
async def a_spawn_and_a_signal_to_the_child_by_its_key(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    parent = await running(store, "run_m")
    return [
        executing("spawn", a_commit(parent, joining(a_child("run_a", correlation_key=KEY)))),
        executing("signal", a_signal_by_key(KEY)),
    ]


@told(
    PAIRS,
    "spawn committed, start taken: run_a ready, run_m waiting",
    "spawn taken, start started: run_b ready, run_m running",
)
async def a_spawn_and_a_start_with_one_key(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    parent = await running(store, "run_m")
    return [
        executing("spawn", a_commit(parent, joining(a_child("run_a", correlation_key=KEY)))),
        executing("start", a_start("run_b", correlation_key=KEY)),
    ]


# Claim and reap


@told(
    PAIRS,
    "w-2 done+got run_1, w-3 nothing: run_1 running",
    "w-2 nothing, w-3 done+got run_1: run_1 running",
)
async def two_claims_of_a_ready_run(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await started(store)
    return [claiming("w-2", an_offer("w-2")), claiming("w-3", an_offer("w-3"))]


@told(
    PAIRS,
    "w-2 done+got run_1, w-3 nothing: run_1 running",
    "w-2 nothing, w-3 done+got run_1: run_1 running",
)
async def two_claims_of_an_expired_lease(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await running(store)
    clock.advance(HOUR)
    return [claiming("w-2", an_offer("w-2")), claiming("w-3", an_offer("w-3"))]


@told(
    PAIRS,
    "w-2 done+got run_1, w-1 stale: run_1 running",
    "w-2 nothing, w-1 committed: run_1 completed",
)
async def a_claim_and_the_late_end_of_the_stale_worker(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    turn = await running(store)
    clock.advance(HOUR)
    return [claiming("w-2", an_offer("w-2")), executing("w-1", a_commit(turn, ending()))]


@told(
    PAIRS,
    "w-2 done+got run_1, w-1 stale: run_1 running",
    "w-2 nothing, w-1 committed+got run_1: run_1 running",
)
async def a_claim_and_the_late_step_of_the_stale_worker(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    turn = await running(store)
    clock.advance(HOUR)
    step = a_commit(turn, going_on(), keep=True)
    return [claiming("w-2", an_offer("w-2")), executing("w-1", step, offer=an_offer("w-1", slots=0))]


@told(
    PAIRS,
    "w-2 done+got run_1, w-1 lost it: run_1 running",
    "w-2 nothing, w-1 kept it: run_1 running",
)
async def a_claim_and_a_late_renewal(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await running(store)
    clock.advance(HOUR)
    return [claiming("w-2", an_offer("w-2")), renewing("w-1", "run_1", 1, MINUTE)]


@told(
    PAIRS,
    "step committed+got run_1, renewal kept it: run_1 running",
)
async def a_step_and_a_renewal(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    turn = await running(store)
    step = a_commit(turn, going_on(), keep=True)
    return [executing("step", step, offer=an_offer(slots=0)), renewing("renewal", "run_1", 1, HOUR)]


@told(
    PAIRS,
    "w-2 done+got run_1, end 1: run_1 running",
    "w-2 nothing, end 1: run_1 running",
)
async def a_claim_and_the_end_of_all_leases(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await running(store)
    return [claiming("w-2", an_offer("w-2")), ending_leases("end", "worker-1")]


@told(
    PAIRS,
    "w-2 done+got run_1, signal queued: run_1 running",
    "w-2 nothing, signal queued: run_1 ready",
)
async def a_claim_and_a_signal(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await started(store)
    return [claiming("w-2", an_offer("w-2")), executing("signal", a_signal())]


@told(
    PAIRS,
    "w-2 done+got run_1, cancel cancelled: run_1 cancelled",
    "w-2 nothing, cancel cancelled: run_1 cancelled",
)
async def a_claim_of_an_expired_lease_and_a_cancel(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await running(store)
    clock.advance(HOUR)
    return [claiming("w-2", an_offer("w-2")), executing("cancel", a_cancel())]


# One dedup key


@told(
    PAIRS,
    "one duplicate, other woke: run_1 ready",
    "one woke, other duplicate: run_1 ready",
)
async def a_signal_sent_twice_to_a_run(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await parked(store)
    return [executing(name, a_signal(dedup_key="d-1")) for name in ("one", "other")]


@told(
    PAIRS,
    "one duplicate, other woke: run_1 ready",
    "one woke, other duplicate: run_1 ready",
)
async def a_signal_sent_twice_to_a_key(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await parked(store, correlation_key=KEY)
    return [executing(name, a_signal_by_key(KEY, dedup_key="d-1")) for name in ("one", "other")]


@told(
    PAIRS,
    "by id conflict, by key woke: run_1 ready",
    "by id woke, by key conflict: run_1 ready",
)
async def a_signal_sent_to_a_run_and_to_its_key(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await parked(store, correlation_key=KEY)
    return [
        executing("by id", a_signal(dedup_key="d-1")),
        executing("by key", a_signal_by_key(KEY, dedup_key="d-1", payload='"another"')),
    ]


# Starts


@told(
    PAIRS,
    "run_1 started, run_2 taken: run_1 ready",
    "run_1 taken, run_2 started: run_2 ready",
)
async def two_starts_with_one_key(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    return [executing(id, a_start(id, correlation_key=KEY)) for id in ("run_1", "run_2")]


@told(
    PAIRS,
    "one started, other started: run_1 ready",
)
async def one_start_tried_twice(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    return [executing(name, a_start(correlation_key=KEY)) for name in ("one", "other")]


@told(
    PAIRS,
    "run_1 queued, run_2 started+queued: run_2 ready",
    "run_1 started+queued, run_2 queued: run_1 ready",
)
async def two_start_or_signal_with_one_key(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    return [executing(id, a_start_or_signal(id, KEY)) for id in ("run_1", "run_2")]


@told(
    PAIRS,
    "one duplicate, other started+queued: run_1 ready",
    "one started+queued, other duplicate: run_1 ready",
)
async def one_start_or_signal_tried_twice(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    return [executing(name, a_start_or_signal("run_1", KEY, dedup_key="d-1")) for name in ("one", "other")]


@told(
    PAIRS,
    "call queued, end committed: run_1 completed",
    "call started+queued, end committed: run_1 completed, run_2 ready",
)
async def a_start_or_signal_and_the_end_of_the_holder(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    turn = await running(store, correlation_key=KEY)
    return [executing("call", a_start_or_signal("run_2", KEY)), executing("end", a_commit(turn, ending()))]


@told(
    PAIRS,
    "signal no_target, end committed: run_1 completed",
    "signal queued, end committed: run_1 completed",
)
async def a_signal_by_key_and_the_end_of_the_holder(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    turn = await running(store, correlation_key=KEY)
    return [executing("signal", a_signal_by_key(KEY)), executing("end", a_commit(turn, ending()))]


@told(
    PAIRS,
    "signal queued, move committed+started: run_1 completed, run_2 ready",
)
async def a_signal_by_key_and_a_key_that_moves(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    turn = await running(store, correlation_key=KEY)
    move = executing("move", a_commit(turn, ending()), a_start("run_2", correlation_key=KEY))
    return [executing("signal", a_signal_by_key(KEY)), move]


# Intake


async def left(store: PostgresStore, *commands: object) -> None:
    async with store.connection() as connection:
        for command in commands:
            await store.leave(connection, command)  # type: ignore[arg-type]


@told(
    PAIRS,
    "one nothing, other started: run_1 ready",
    "one started, other nothing: run_1 ready",
)
async def two_admissions_of_one_start(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await left(store, a_start(correlation_key=KEY))
    return [admitting("one"), admitting("other")]


@told(
    PAIRS,
    "one nothing, other woke: run_1 ready",
    "one woke, other nothing: run_1 ready",
)
async def two_admissions_of_one_signal(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await parked(store)
    await left(store, a_signal())
    return [admitting("one"), admitting("other")]


@told(
    PAIRS,
    "one nothing, other started: run_1 ready",
    "one queued, other started: run_1 ready",
    "one started, other nothing: run_1 ready",
    "one started, other queued: run_1 ready",
)
async def an_admission_of_a_start_and_one_of_its_signal(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await left(store, a_start(), a_signal())
    return [admitting("one", most=1), admitting("other", most=1)]


@told(
    PAIRS,
    "admission no_target, end committed: run_1 completed",
    "admission queued, end committed: run_1 completed",
)
async def an_admission_and_the_end_of_the_holder(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    turn = await running(store, correlation_key=KEY)
    await left(store, a_signal_by_key(KEY))
    return [admitting("admission"), executing("end", a_commit(turn, ending()))]


@told(
    PAIRS,
    "admission started, start taken: run_1 ready",
    "admission taken, start started: run_2 ready",
)
async def an_admission_and_a_start_with_one_key(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await left(store, a_start("run_1", correlation_key=KEY))
    return [admitting("admission"), executing("start", a_start("run_2", correlation_key=KEY))]


# Retention


@told(
    PAIRS,
    "retention 0, signal no_target: run_1 completed",
    "retention 1, signal no_target: no run",
)
async def retention_and_a_signal(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await ended(store)
    clock.advance(2 * HOUR)
    return [deleting_ended("retention", HOUR), executing("signal", a_signal())]


@told(
    PAIRS,
    "retention 0, answer denied: run_1 completed",
    "retention 1, answer denied: no run",
    "retention 1, answer no_target: no run",
)
async def retention_and_an_answer_that_is_denied(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    """The refusal goes into the ledger of the run, though that has ended."""
    await parked(store, park=waiting_for("go", details='{"assignee":"ann"}'))
    await store.execute([a_commit(await woken(store), ending())])
    clock.advance(2 * HOUR)
    answer = Answer(
        workspace=WORKSPACE,
        run_id=RunId("run_1"),
        no=1,
        item=None,
        target="wait_1_1",
        message_id="msg_1",
        data="1",
        digest="of 1",
        by="bob",
    )
    return [deleting_ended("retention", HOUR), executing("answer", answer)]


@told(
    PAIRS,
    "retention 0, signal duplicate: run_1 completed",
    "retention 1, signal duplicate: no run",
    "retention 1, signal no_target: no run",
)
async def retention_and_a_signal_that_came_before(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    turn = await running(store)
    signal = a_signal(dedup_key="d-1")
    await store.execute([signal])
    await store.execute([a_commit(turn, ending())])
    clock.advance(2 * HOUR)
    return [deleting_ended("retention", HOUR), executing("signal", signal)]


@told(
    PAIRS,
    "one 0, other 1: no run",
    "one 1, other 0: no run",
)
async def retention_and_retention(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await ended(store)
    clock.advance(2 * HOUR)
    return [deleting_ended(name, HOUR) for name in ("one", "other")]


# Many runs in one batch


@told(
    PAIRS,
    "by id duplicate+duplicate, by key woke+woke: run_1 ready, run_2 ready",
    "by id woke+woke, by key duplicate+duplicate: run_1 ready, run_2 ready",
)
async def batches_that_meet_at_two_runs(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    for id in ("run_1", "run_2"):
        await parked(store, id, correlation_key=f"key of {id}")
    backwards = [a_signal_by_key(f"key of {id}", dedup_key="d-1") for id in ("run_2", "run_1")]
    return [
        executing("by id", *(a_signal(id, dedup_key="d-1") for id in ("run_1", "run_2"))),
        executing("by key", *backwards),
    ]


@told(
    PAIRS,
    "one started+started, other taken+taken: run_1 ready, run_4 ready",
    "one taken+taken, other started+started: run_2 ready, run_3 ready",
)
async def batches_that_start_two_runs_each(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    return [
        executing("one", a_start("run_1", correlation_key="a"), a_start("run_4", correlation_key="b")),
        executing("other", a_start("run_2", correlation_key="b"), a_start("run_3", correlation_key="a")),
    ]


@told(
    PAIRS,
    "chore done, run_z committed: run_a cancelled, run_m cancelled, run_z completed",
    "chore done, run_z stale: run_a cancelled, run_m cancelled, run_z cancelled",
)
async def the_children_of_a_cancelled_parent_and_one_that_ends(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    family = await a_family(store, "run_a", "run_z")
    await store.execute([a_cancel("run_m")])
    [chore] = await store.due_chores(1)
    cancelling = CancelChildren(
        workspace="default", chore_id=chore.id, run_id=chore.run_id, children=tuple(family), reason="x", is_last=True
    )
    return [executing("chore", cancelling), family[RunId("run_z")]]


@told(
    PAIRS,
    "timers done, end committed: run_a failed, run_m ready, run_z completed",
    "timers nothing, end committed: run_a waiting, run_m waiting, run_z completed",
)
async def a_child_that_times_out_and_its_sister_that_ends(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    parent = await running(store, "run_m")
    join = joining(a_child("run_a"), a_child("run_z"))
    turns = (await store.execute([a_commit(parent, join)], an_offer())).turns
    park = waiting_for("go", timeout=HOUR, on_timeout="!fail")
    await store.execute([a_commit(turns[RunId("run_a")], park)])
    clock.advance(HOUR)
    return [firing_timers(), executing("end", a_commit(turns[RunId("run_z")], ending()))]


@told(
    PAIRS,
    "w-2 done+got run_1, w-3 done+got run_2: run_1 running, run_2 running",
    "w-2 nothing, w-3 done+done+got run_1+got run_2: run_1 running, run_2 running",
)
async def two_claims_of_two_runs(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    await started(store, "run_1")
    await running(store, "run_2")
    clock.advance(HOUR)
    return [claiming("w-2", an_offer("w-2", slots=1)), claiming("w-3", an_offer("w-3", slots=2))]


# Idempotency keys whose time is up


@told(
    PAIRS,
    "one started, other started: run_0 ready, run_1 ready",
    "one started, other started: run_0 ready, run_2 ready",
)
async def two_starts_with_an_idempotency_key_whose_time_is_up(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    """The second is told of the run of the first (H2)."""
    await store.execute([once("run_0")])
    clock.advance(KEPT_FOR)
    return [executing("one", once("run_1")), executing("other", once("run_2"))]


@told(
    PAIRS,
    "start started, chore done: run_0 ready, run_1 ready",
    "start started, chore idle: run_0 ready, run_1 ready",
)
async def an_idempotency_key_that_is_used_anew_and_the_end_of_its_time(
    store: PostgresStore, clock: VirtualClock
) -> list[Call]:
    await store.execute([once("run_0", outlives_run=True)])
    clock.advance(KEPT_FOR)
    [chore] = await store.claim_chores(9, MINUTE)
    end = LetGo(workspace=WORKSPACE, run_id=chore.run_id, chore=chore)
    return [executing("start", once("run_1", outlives_run=True)), executing("chore", end)]


def once(run_id: str, **changes: Any) -> Once:
    key = OnceKey(path="/v1/runs", key="k", digest="d")
    return Once(workspace=WORKSPACE, once=key, command=a_start(run_id), **changes)


# Three at once


@told(
    TRIPLES,
    "park committed, signal no_target, cancel cancelled: run_1 cancelled",
    "park committed, signal queued, cancel cancelled: run_1 cancelled",
    "park committed, signal woke, cancel cancelled: run_1 cancelled",
    "park stale, signal no_target, cancel cancelled: run_1 cancelled",
    "park stale, signal queued, cancel cancelled: run_1 cancelled",
)
async def a_park_a_signal_and_a_cancel(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    return [*await a_park_and_a_signal(store, clock), executing("cancel", a_cancel())]


@told(
    TRIPLES,
    "timers done, signal no_target, cancel cancelled: run_1 cancelled",
    "timers done, signal queued, cancel cancelled: run_1 cancelled",
    "timers nothing, signal no_target, cancel cancelled: run_1 cancelled",
    "timers nothing, signal woke, cancel cancelled: run_1 cancelled",
)
async def a_timeout_a_signal_and_a_cancel(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    return [*await a_timeout_and_a_signal(store, clock), executing("cancel", a_cancel())]


@told(
    TRIPLES,
    "park committed, one duplicate, other queued: run_1 ready",
    "park committed, one duplicate, other woke: run_1 ready",
    "park committed, one queued, other duplicate: run_1 ready",
    "park committed, one woke, other duplicate: run_1 ready",
)
async def a_park_and_a_signal_sent_twice(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    turn = await running(store)
    signals = [executing(name, a_signal(dedup_key="d-1")) for name in ("one", "other")]
    return [executing("park", a_commit(turn, waiting_for("go"))), *signals]


@told(
    TRIPLES,
    "run_a committed, run_z committed, timers done: run_a completed, run_m ready, run_z completed",
    "run_a committed, run_z committed, timers nothing: run_a completed, run_m ready, run_z completed",
)
async def two_last_children_end_and_the_join_times_out(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    family = await a_family(store, "run_a", "run_z", timeout=HOUR)
    clock.advance(HOUR)
    return [*family.values(), firing_timers()]


@told(
    TRIPLES,
    "w-2 done+got run_1, w-1 stale, w-3 nothing: run_1 running",
    "w-2 nothing, w-1 committed, w-3 nothing: run_1 completed",
    "w-2 nothing, w-1 stale, w-3 done+got run_1: run_1 running",
)
async def two_claims_and_the_late_end_of_the_stale_worker(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    return [*await a_claim_and_the_late_end_of_the_stale_worker(store, clock), claiming("w-3", an_offer("w-3"))]


@told(
    TRIPLES,
    "run_2 queued, run_3 queued, end committed: run_1 completed",
    "run_2 queued, run_3 started+queued, end committed: run_1 completed, run_3 ready",
    "run_2 started+queued, run_3 queued, end committed: run_1 completed, run_2 ready",
)
async def two_start_or_signal_and_the_end_of_the_holder(store: PostgresStore, clock: VirtualClock) -> list[Call]:
    turn = await running(store, correlation_key=KEY)
    calls = [executing(id, a_start_or_signal(id, KEY)) for id in ("run_2", "run_3")]
    return [*calls, executing("end", a_commit(turn, ending()))]


async def _never_alone(*_: object) -> None:
    return None


def under_locks(patch: pytest.MonkeyPatch) -> None:
    """Deliveries and claims that come alone are executed as if they had company."""
    patch.setattr(transactions.Transactions, "run_alone", _never_alone)


async def _try_pair(url: str, name: str) -> Tried:
    tried = await try_orders(url, PAIRS[name].story, cap=CAP)
    assert tried.verdicts == {"ok": tried.run}, str(tried)
    assert tried.is_complete, str(tried)
    return tried


@pytest.mark.parametrize("name", PAIRS)
async def test_two_calls_do_in_any_order_what_they_do_one_after_the_other(
    postgres_used_url: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    under_locks(monkeypatch)
    tried = await _try_pair(postgres_used_url, name)
    assert tried.tales.keys() == PAIRS[name].tales, str(tried)


ON_OTHER_VERSIONS = (
    "a park and a signal",
    "a timeout and a signal",
    "a cancel and a signal",
    "the last two children end",
    "two claims of an expired lease",
    "a signal sent twice to a run",
)


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "under locks"])
@pytest.mark.parametrize("name", ON_OTHER_VERSIONS)
async def test_two_calls_do_the_same_on_servers_of_other_versions(
    other_postgres_used_url: str, monkeypatch: pytest.MonkeyPatch, name: str, alone: bool
) -> None:
    """D4, D5, R1, R2: what locks and snapshots promise must not hang on the version of the server."""
    if not alone:
        under_locks(monkeypatch)
    tried = await _try_pair(other_postgres_used_url, name)
    assert tried.tales.keys() <= PAIRS[name].tales if alone else tried.tales.keys() == PAIRS[name].tales, str(tried)


@pytest.mark.parametrize("name", [name for name in PAIRS if re.search("signal|claim", name)])
async def test_two_calls_that_come_alone_do_the_same_without_locks(postgres_used_url: str, name: str) -> None:
    tried = await _try_pair(postgres_used_url, name)
    assert tried.tales.keys() <= PAIRS[name].tales, str(tried)  # nobody who only looks is turned away by a lock


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "under locks"])
@pytest.mark.parametrize("name", TRIPLES)
async def test_three_calls_do_in_any_order_what_they_do_one_after_the_other(
    postgres_used_url: str, monkeypatch: pytest.MonkeyPatch, name: str, alone: bool
) -> None:
    if not alone:
        under_locks(monkeypatch)
    tried = await try_orders(postgres_used_url, TRIPLES[name].story, cap=CAP if ALL else 0, samples=SAMPLES)
    assert tried.verdicts == {"ok": tried.run}, str(tried)
    assert tried.tales.keys() <= TRIPLES[name].tales, str(tried)


# Mutants: code that breaks one rule of the protocol


def spoil(patch: pytest.MonkeyPatch, name: str, old: str, new: str) -> None:
    """Change the text of one statement of stores that are opened from here on."""
    whole: Callable[[str], Mapping[str, str]] = vars(store_module)["statements"]

    def spoiled(schema: str) -> Mapping[str, str]:
        sql = whole(schema)
        assert old in sql[name]
        return {**sql, name: sql[name].replace(old, new)}

    patch.setattr(store_module, "statements", spoiled)


class ReadsBeforeTheLock(Tables):
    async def lock_runs(self, ids: Collection[RunId], *, only_free: bool = False) -> tuple[list[Run], datetime | None]:
        self.waits = list(await super().load_waits({(id, no) for id in ids for no in (1, 2)}))
        self.signals = list(await super().load_inboxes(ids))
        return await super().lock_runs(ids, only_free=only_free)

    async def load_waits(self, keys: Collection[RowKey]) -> Iterable[Wait]:
        return [wait for wait in self.waits if (wait.run_id, wait.no) in keys]

    async def load_inboxes(self, ids: Collection[RunId]) -> Iterable[Signal]:
        return [signal for signal in self.signals if signal.run_id in ids]

    async def load_signals(self, wanted: Collection[Named], most: int | None) -> Iterable[Signal]:
        return [signal for signal in self.signals if (signal.run_id, signal.name) in wanted]


class LocksAndReadsAtOnce(ReadsBeforeTheLock):
    async def lock_runs(self, ids: Collection[RunId], *, only_free: bool = False) -> tuple[list[Run], datetime | None]:
        lock = self._transaction._sql["lock_free_runs" if only_free else "lock_runs"]
        [schema] = re.findall(r"FROM (\S+)\.runs", lock)
        inbox, waits = (
            f"(SELECT json_agg(row) FROM {schema}.{table} AS row WHERE run_id = locked.id)"
            for table in ("inbox", "waits")
        )
        rows = await self._transaction._connection.fetch(
            lock.replace("locked.*,", f"locked.*, {inbox}, {waits},"), array(list(ids))
        )
        self.signals = [msgspec.convert(row, Signal) for *_, inbox, _, _ in rows for row in json.loads(inbox or "[]")]
        self.waits = [_a_wait(row) for *_, waits, _ in rows for row in json.loads(waits or "[]")]
        return [read_run(row) for row in rows], rows[-1][-1] if rows else None


def _a_wait(row: dict[str, Any]) -> Wait:
    return msgspec.convert({**row, **{name: json.loads(row[name]) for name in ("names", "seen", "partial")}}, Wait)


class SkipsLockedRuns(Tables):
    async def lock_runs(self, ids: Collection[RunId], *, only_free: bool = False) -> tuple[list[Run], datetime | None]:
        return await super().lock_runs(ids, only_free=True)


class LocksNoParents(Tables):
    async def lock_runs(self, ids: Collection[RunId], *, only_free: bool = False) -> tuple[list[Run], datetime | None]:
        lock = self._transaction._sql["lock_runs"]
        rows = await self._transaction._connection.fetch(
            lock.replace("FOR NO KEY UPDATE", ""), array([id for id in ids if id == "run_m"])
        )
        locked, now = await super().lock_runs([id for id in ids if id != "run_m"], only_free=only_free)
        return [*map(read_run, rows), *locked], now


def decides_without_epochs(view: View, commands: Sequence[AnyCommand]) -> list[Reply]:
    def fitted(command: AnyCommand) -> AnyCommand:
        run = view.runs.get(command.run_id) if isinstance(command, CommitTurn) else None
        return command if run is None else replace(command, epoch=run.epoch, commits=run.commits)

    return decide_all(view, [fitted(command) for command in commands])


def grants_the_old_epoch(draft: Draft, run: Run, entry: str, data: Mapping[str, Any]) -> Run:
    return moves.grant(draft, replace(run, epoch=run.epoch - 1), entry, data)


def writes_whatever_has_moved(parts: tuple[tuple[str, str], ...], has_hint: bool = False) -> str:
    return re.sub(
        r"run\.xmin::text = ANY \((\$\d+)::text::text\[\]\)", r"\1::text IS NOT NULL", unless_moved(parts, has_hint)
    )


def _tables(kind: type[Tables]) -> Mutation:
    return lambda patch: patch.setattr(batches, "Tables", kind)


def _sql(name: str, old: str, new: str = "") -> Mutation:
    return lambda patch: spoil(patch, name, old, new)


def _both(*mutations: Mutation) -> Mutation:
    def mutate(patch: pytest.MonkeyPatch) -> None:
        for mutation in mutations:
            mutation(patch)

    return mutate


LOCKS_NO_RUN = _both(_sql("lock_runs", "FOR NO KEY UPDATE"), _sql("lock_versions", "FOR NO KEY UPDATE"))


# They number the pages of the ledger and the signals of an inbox: who writes without having locked trips over them.
TRIPWIRES = (("ledger", "ledger_pkey"), ("inbox", "inbox_pkey"))


@dataclass(frozen=True)
class Mutant:
    mutation: Mutation
    story: Story
    verdict: str
    dropped: Sequence[tuple[str, str]] = ()
    cap: int = 60
    alone: bool = False
    """Whether deliveries and claims that come alone go without locks; what the others spoil would not be reached."""


MUTANTS = {
    "park and delivery read before the lock": Mutant(_tables(ReadsBeforeTheLock), a_park_and_a_signal, "lost"),
    "park and delivery lock and read in one statement": Mutant(
        _tables(LocksAndReadsAtOnce), a_park_and_a_signal, "lost"
    ),
    "delivery skips a locked run": Mutant(_tables(SkipsLockedRuns), a_park_and_a_signal, "lost"),
    "nobody locks the run": Mutant(LOCKS_NO_RUN, a_park_and_a_signal, "failed"),
    "nobody locks the run, and nothing is numbered": Mutant(LOCKS_NO_RUN, a_park_and_a_signal, "lost", TRIPWIRES),
    # Whoever changes anything of a run writes its row: a snapshot that is too old becomes an abort, not a lost signal.
    "transactions are of repeatable read": Mutant(
        lambda patch: patch.setattr(transactions, "BEGIN", BEGIN.replace("READ COMMITTED", "REPEATABLE READ")),
        a_park_and_a_signal,
        "aborted",
    ),
    "a commit is not fenced by its epoch": Mutant(
        lambda patch: patch.setattr(batches, "decide_all", decides_without_epochs),
        a_claim_and_the_late_end_of_the_stale_worker,
        "doubled",
    ),
    "a claim leaves the epoch as it is": Mutant(
        lambda patch: patch.setattr(turns, "grant", grants_the_old_epoch),
        a_claim_and_the_late_end_of_the_stale_worker,
        "doubled",
    ),
    "claims do not lock the queue": Mutant(
        _sql("lock_due_queue", "FOR UPDATE SKIP LOCKED"), two_claims_of_an_expired_lease, "doubled"
    ),
    "claims do not lock the run": Mutant(
        _sql("lock_free_runs", "FOR NO KEY UPDATE SKIP LOCKED"),
        a_claim_and_the_late_end_of_the_stale_worker,
        "aborted",  # each waits for a row of the other, until the server ends one of them
        cap=3,
    ),
    "timers check the wait, then act": Mutant(
        _both(_tables(ReadsBeforeTheLock), _sql("lock_due_timers", "FOR UPDATE SKIP LOCKED")),
        a_timeout_and_a_signal,
        "doubled",
    ),
    "the end of a child does not lock its parent": Mutant(_tables(LocksNoParents), the_last_two_children_end, "lost"),
    "a name that a rival took goes unnoticed": Mutant(
        _sql("insert_names", "DO NOTHING", "DO UPDATE SET name = excluded.name"), two_starts_with_one_key, "doubled"
    ),
    "a target that moved is not looked up again": Mutant(
        lambda patch: patch.setattr(store_module, "again", lambda replies: []),
        a_start_or_signal_and_the_end_of_the_holder,
        "lost",
    ),
    "admissions do not lock the intake": Mutant(
        _both(_sql("lock_intake", "pg_try_advisory_xact_lock(", "0 <> ("), _sql("lock_intake", "FOR UPDATE")),
        two_admissions_of_one_signal,
        "doubled",
    ),
    "admissions do not wait for their turn": Mutant(
        _both(
            _sql("lock_intake", "pg_try_advisory_xact_lock(", "0 <> ("),
            _sql("lock_intake", "FOR UPDATE", "FOR UPDATE SKIP LOCKED"),
        ),
        an_admission_of_a_start_and_one_of_its_signal,
        "unlike any serial order",
    ),
    "a signal alone does not ask whether its run has moved": Mutant(
        lambda patch: patch.setattr(transactions, "unless_moved", writes_whatever_has_moved),
        a_park_and_a_signal,
        "lost",
        TRIPWIRES,
        alone=True,
    ),
    "a claim alone does not ask whether its run has moved": Mutant(
        lambda patch: patch.setattr(transactions, "unless_moved", writes_whatever_has_moved),
        two_claims_of_a_ready_run,
        "doubled",
        TRIPWIRES,
        alone=True,
    ),
    "retention does not lock the run": Mutant(
        _sql("lock_ended", "FOR UPDATE OF run SKIP LOCKED"),
        retention_and_an_answer_that_is_denied,
        "breaks I14",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
async def test_code_that_breaks_a_rule_is_caught(
    postgres_used_url: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mutant = MUTANTS[name]
    if not mutant.alone:
        under_locks(monkeypatch)
    tried = await try_orders(
        postgres_used_url,
        mutant.story,
        cap=mutant.cap,
        mutate=lambda: mutant.mutation(monkeypatch),
        dropped=mutant.dropped,
    )
    assert tried.verdicts[mutant.verdict] > 0, str(tried)
    assert tried.verdicts["ok"] > 0, f"it would be caught without any race\n{tried}"
