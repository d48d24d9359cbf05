"""Round trips: every field of every record comes back as it went in, whatever it holds."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from bide.core import ledger
from bide.core.commands import Committed, KeepUnused, Started
from bide.core.records import Record, RunId, Signal, Unused
from bide.stores.interface import RunFilter, Store, WaitFilter
from bide.testing.store_contract.making import (
    MINUTE,
    a_cancel,
    a_child,
    a_commit,
    a_give_back,
    a_signal,
    a_signal_by_key,
    a_start,
    an_offer,
    ended,
    ending,
    joining,
    outcomes,
    parked,
    redoing,
    reply_to,
    row,
    running,
    started,
    told,
    waiting_for,
)
from bide.testing.world import VirtualClock

ODD_TEXTS = {
    "empty": "",
    "spaces": "  two \t tabs \n and \r\n lines ",
    "quotes": """it's "quoted" `so` and ''doubled''""",
    "slashes": r"C:\new\table \u0041 \\ /* */ -- ; {} {0} %s %(x)s $1 :name ?",
    "braces": '{"a","b",NULL} [1,2] (3,4)',
    "null": "NULL",
    "accents": "Zoë Müller, naïve café; e\u0301 is not \u00e9",
    "scripts": "Привет 你好 שלום नमस्ते",
    "emoji": "🦊👩‍👩‍👧‍👦🏳️‍🌈 𝄞",
    "controls": "\x01\x1f\x7f\u2028\ufeff\uffff",
    "long": "ä" * 700,
}
each_odd_text = pytest.mark.parametrize("odd", ODD_TEXTS.values(), ids=ODD_TEXTS.keys())

BIG = 2**63 - 1
LARGEST_PAYLOAD = 512 * 1024


def payload_of(size: int) -> str:
    """A JSON text of this many bytes, most of its characters longer than one."""
    filling = "ß🦊" * ((size - 2) // 6)
    return '"' + filling + "x" * (size - 2 - len(filling.encode())) + '"'


class RoundTrips:
    @each_odd_text
    async def test_every_text_of_a_run_is_kept(self, store: Store, odd: str) -> None:
        text = json.dumps(odd, ensure_ascii=False)
        start = a_start(
            workspace=odd,
            definition=odd,
            version=odd,
            step=odd,
            input=text,
            queue=odd,
            correlation_key=odd,
            tags=f'{{{text}:{text},"b":"c"}}',
            retry_of=RunId(odd),
            actor=odd,
        )

        run = told(Started, await reply_to(store, start)).run

        assert await store.run(odd, "run_1") == run
        assert (run.workspace, run.definition, run.version, run.step, run.queue) == (odd,) * 5
        assert (run.input, run.state, run.tags) == (text, text, start.tags)
        assert (run.correlation_key, run.retry_of) == (odd, odd)
        assert await store.holder(odd, odd) == "run_1"
        everything = RunFilter(workspace=odd, definition=odd, correlation_key=odd, tags={odd: odd, "b": "c"})
        assert list(await store.runs(everything, after=None, limit=9)) == [run]
        assert list(await store.runs(RunFilter(tags={odd: odd + "x"}), after=None, limit=9)) == []
        assert await store.count_runs(odd) == {"ready": 1}
        assert await store.until_due(frozenset({odd})) == timedelta(0)
        [page] = await store.ledger("run_1")
        [entry] = ledger.decode_page(page.entries)
        assert (entry.actor, entry.data["definition"]) == (odd, odd)
        offer = an_offer(odd, queues=frozenset({odd}), definitions=frozenset({odd}))
        [turn] = (await store.claim(offer)).turns.values()
        assert turn.run == await row(store, workspace=odd)
        assert await store.end_leases(odd) == 1

    @each_odd_text
    async def test_every_text_of_a_turn_is_kept(self, store: Store, clock: VirtualClock, odd: str) -> None:
        text = json.dumps(odd, ensure_ascii=False)
        turn = await running(store)
        done = await store.execute(
            [a_commit(turn, replace(redoing(), state=text, error=odd), keep=True)], an_offer(odd)
        )
        turn = done.turns[turn.run.id]
        assert (await row(store)).state == text
        park = waiting_for(odd, f"{odd}!", step=odd, state=text, on_timeout=odd, details=text, timeout=MINUTE)

        run = told(Committed, await reply_to(store, a_commit(turn, park))).run

        assert await row(store) == run
        assert (run.step, run.state) == (odd, text)
        [wait] = await store.waits(WaitFilter(), after=None, limit=9)
        assert (wait.key, wait.names, wait.on_timeout, wait.details) == (odd, (odd, f"{odd}!"), odd, text)
        clock.advance(MINUTE)
        [turn] = (await store.fire_timers(9, an_offer())).turns.values()
        assert turn.woken_by == replace(wait, status="timed_out", cause="timeout", closed_at=clock(), due_at=None)
        await store.execute([a_commit(turn, ending(status="failed", result=text, error=odd))])
        assert ((await row(store)).result, (await row(store)).error) == (text, odd)

    @each_odd_text
    async def test_every_text_of_a_signal_is_kept(self, store: Store, clock: VirtualClock, odd: str) -> None:
        text = json.dumps(odd, ensure_ascii=False)
        await parked(store, "run_1", odd, correlation_key="order-7")
        signal = a_signal_by_key("order-7", odd, signal_id=odd, payload=text, digest=odd, dedup_key=odd, actor=odd)

        done = await store.execute([signal, replace(signal, signal_id="again")], an_offer())

        assert outcomes(done) == ["woke", "duplicate"]
        assert done.replies[1].message_id == odd  # type: ignore[union-attr]  # a Receipt, as was just seen
        kept = Signal(
            workspace="default", run_id=RunId("run_1"), seq=1, id=odd, name=odd, payload=text, received_at=clock()
        )
        assert list(await store.inbox("run_1")) == [kept]
        assert done.turns[RunId("run_1")].inbox == (kept,)

    @each_odd_text
    async def test_every_text_of_an_unused_arrival_is_kept(self, store: Store, clock: VirtualClock, odd: str) -> None:
        text = json.dumps(odd, ensure_ascii=False)
        unused = Unused(workspace=odd, id=odd, run_id=odd, target=odd, name=odd, payload=text, reason=odd, at=clock())

        await store.execute([KeepUnused(workspace=odd, actor=odd, unused=unused)])

        assert list(await store.unused(odd, limit=9)) == [unused]

    @each_odd_text
    async def test_the_texts_of_a_cancel_are_kept(self, store: Store, odd: str) -> None:
        await started(store)

        await store.execute([a_cancel(reason=odd, actor=odd)])

        assert (await row(store)).cancel_reason == (odd or "cancelled")

    @each_odd_text
    async def test_the_texts_of_a_child_are_kept(self, store: Store, odd: str) -> None:
        text = json.dumps(odd, ensure_ascii=False)
        parent = await running(store, "run_1")
        child = a_child(
            f"run_{odd}",
            definition=odd,
            version=odd,
            step=odd,
            input=text,
            queue=odd,
            priority=-7,
            correlation_key=odd,
            cleanup_seconds=0.5,
            tags=f'{{"t":{text}}}',
        )

        await store.execute([a_commit(parent, joining(child))])

        run = await row(store, f"run_{odd}")
        assert (run.definition, run.version, run.step, run.queue, run.correlation_key) == (odd,) * 5
        assert (run.input, run.state, run.tags) == (text, text, child.tags)
        assert (run.priority, run.cleanup_seconds) == (-7, 0.5)
        assert (run.parent_id, run.parent_wait, run.child_no) == ("run_1", 1, 0)
        assert await store.live_children(RunId("run_1"), 9) == [f"run_{odd}"]
        turns = (await store.execute([a_cancel(f"run_{odd}", force=True)], an_offer())).turns
        assert turns[RunId("run_1")].children == (await row(store, f"run_{odd}"),)

    async def test_payloads_of_the_largest_size_are_kept(self, store: Store) -> None:
        large = payload_of(LARGEST_PAYLOAD)
        assert len(large.encode()) == LARGEST_PAYLOAD
        turn = await running(store, input=large)
        done = await store.execute(
            [
                a_signal(payload=large),
                a_signal("run_none", payload=large),
                a_commit(turn, waiting_for("go", state=large), keep=True),
            ],
            an_offer(),
        )
        turn = done.turns[turn.run.id]

        assert [signal.payload for signal in turn.inbox] == [large]
        assert (turn.run.input, turn.run.state) == (large, large)
        assert [unused.payload for unused in await store.unused("default", limit=9)] == [large]
        await store.execute([a_commit(turn, ending(result=large, error=large), used=turn.inbox)])
        run = await row(store)
        assert (run.input, run.state, run.result, run.error) == (large,) * 4
        assert any(large in page.entries for page in await store.ledger("run_1"))

    @pytest.mark.parametrize("priority", [BIG, -BIG - 1, 2**31, -(2**31) - 1, 2**53 + 1, 0])
    async def test_whole_numbers_are_kept(self, store: Store, priority: int) -> None:
        await started(store, priority=priority)

        [turn] = (await store.claim(an_offer())).turns.values()

        assert turn.run.priority == (await row(store)).priority == priority

    @pytest.mark.parametrize("seconds", [0.0, 0.1, 1e-6, 1 / 3, 86_400.0, 3e10])
    async def test_fractions_are_kept(self, store: Store, seconds: float) -> None:
        run = await started(store, cleanup_seconds=seconds)

        assert (await row(store)).cleanup_seconds == run.cleanup_seconds == seconds

    @pytest.mark.parametrize(
        "numbers", [(), (1,), tuple(range(1, 300)), (BIG, 1, 2**53 + 1)], ids=["none", "one", "many", "big"]
    )
    async def test_tuples_are_kept_in_their_order(self, store: Store, numbers: tuple[int, ...]) -> None:
        names = tuple(f"name {n}" for n in reversed(numbers))
        await parked(store, park=waiting_for(*names, seen=numbers))

        [wait] = await store.waits(WaitFilter(), after=None, limit=9)

        assert (wait.seen, wait.names, wait.partial) == (numbers, names, ())
        assert ((await row(store)).open_waits) == (1,)

    @pytest.mark.parametrize(
        "moment",
        [
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            datetime(2030, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
            datetime(2100, 2, 28, 12, 30, 15, 999_999, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999_998, tzinfo=UTC),
            datetime.max.replace(tzinfo=UTC),
        ],
        ids=str,
    )
    async def test_moments_are_kept_to_the_microsecond_and_in_utc(self, store: Store, moment: datetime) -> None:
        await parked(store, park=waiting_for("go", timeout=moment))

        [wait] = await store.waits(WaitFilter(), after=None, limit=9)

        assert wait.deadline == wait.due_at == moment
        assert wait.deadline is not None
        assert wait.deadline.utcoffset() == timedelta(0)

    async def test_all_moments_of_records_are_aware_and_in_utc(self, store: Store, clock: VirtualClock) -> None:
        await parked(store, "run_1", park=waiting_for("go", timeout=MINUTE), cleanup_seconds=60.0)
        await store.execute([a_signal(), a_signal("run_none"), a_cancel()])
        await ended(store, "run_2")

        records: list[Record] = [
            *await store.runs(RunFilter(), after=None, limit=9),
            *await store.waits(WaitFilter(status=None), after=None, limit=9),
            *await store.inbox("run_1"),
            *await store.unused("default", limit=9),
        ]

        moments = [
            v for record in records for f in record.__struct_fields__ if isinstance(v := getattr(record, f), datetime)
        ]
        assert len(moments) > 10
        assert {moment.utcoffset() for moment in [*moments, await store.now()]} == {timedelta(0)}
        assert {moment.microsecond for moment in moments} == {clock().microsecond}

    async def test_what_is_not_set_stays_unset(self, store: Store) -> None:
        run = await started(store)

        assert await row(store) == run
        unset = ("ended_at", "result", "error", "held", "parked_on", "woken_by", "correlation_key", "parent_id")
        assert [getattr(run, name) for name in unset] == [None] * len(unset)
        assert (run.parent_wait, run.child_no, run.cleanup_seconds, run.cancel_until, run.retry_of) == (None,) * 5

    @pytest.mark.parametrize("style", ["machine", "workflow", "pipeline", "machine_file"])
    async def test_every_style_is_kept(self, store: Store, style: str) -> None:
        run = await started(store, style=style)

        assert (await row(store)).style == run.style == style

    @pytest.mark.parametrize("held", ["poison", "history_mismatch", "stuck_thread"])
    async def test_every_reason_to_hold_is_kept(self, store: Store, held: str) -> None:
        await store.execute([a_give_back(await running(store), hold=held)])

        assert (await row(store)).held == held

    async def test_a_long_story_of_one_run_is_kept_whole(self, store: Store, clock: VirtualClock) -> None:
        """Everything that a run row counts goes up, and the ledger has a page for each commit."""
        await parked(store)
        for n in range(1, 31):
            clock.advance(MINUTE)
            [turn] = (await store.execute([a_signal(payload=str(n))], an_offer())).turns.values()
            spawn = a_commit(turn, joining(state=str(n)), used=turn.inbox, keep=True)
            [turn] = (await store.execute([spawn], an_offer())).turns.values()
            await store.execute([a_commit(turn, waiting_for("go", state=turn.run.state))])

        run, pages = await row(store), await store.ledger("run_1")
        assert (run.state, run.wait_no, run.inbox_seq, run.inbox_count, run.commits) == ("30", 61, 30, 0, 61)
        assert len(pages) == 92
        assert ledger.verify(((page.seq, page.entries) for page in pages), run.ledger_head, run.ledger_seq) is None
