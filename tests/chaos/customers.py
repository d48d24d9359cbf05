"""Customers of the shop: they start runs and send signals, try again blindly, and write down what they were told.

A call that fails, or that takes longer than its customer likes to wait, is made again with the same key. What was
acknowledged is in the book; at the end the book and the ledgers must agree.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from bide.client import Client
from bide.core.commands import Receipt
from bide.errors import NoTarget, StoreUnavailable
from bide.views import RunInfo, SignalTo
from tests.chaos.shop import NEEDED

T = TypeVar("T")

ITEMS = 4
PATIENT_SECONDS = 20.0


@dataclass
class Told:
    """An acknowledged signal."""

    run_id: str
    message_id: str


@dataclass
class Book:
    """What the customers were told."""

    runs: dict[str, str] = field(default_factory=dict)  # run ids by correlation key, of acknowledged starts
    signals: dict[str, Told] = field(default_factory=dict)  # by dedup key
    endings: dict[str, Callable[[Any], bool]] = field(default_factory=dict)  # by run id: whether a result is right
    cancelled: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)  # runs that nobody ends
    refused: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    stories: Counter[str] = field(default_factory=Counter)

    def note_start(self, key: str, run_id: str) -> None:
        assert self.runs.setdefault(key, run_id) == run_id, f"{key} was started twice"

    def note_signal(self, dedup_key: str, receipt: Receipt) -> None:
        assert receipt.run_id is not None, receipt
        assert receipt.message_id is not None, receipt
        told = Told(receipt.run_id, receipt.message_id)
        assert self.signals.setdefault(dedup_key, told) == told, f"{dedup_key} was admitted twice"


class Customer:
    """Lives one story after the other until *closing* is set."""

    def __init__(self, no: int, seed: int, client: Client, book: Book, closing: asyncio.Event) -> None:
        self._no = no
        self._chance = Random(f"{seed}/{no}")
        self._client = client
        self._book = book
        self._closing = closing
        self._stories = 0
        self._kinds: list[Callable[[str], Awaitable[None]]] = [
            self.courier,
            self.pack,
            self.family,
            self.race,
            self.early_end,
            self.cancel,
            self.till,
            self.keep,
            self.dawdle,
            self.errand,
        ]

    async def live(self, most: int | None = None) -> None:
        while not self._closing.is_set() and (most is None or self._stories < most):
            # Every kind in turn, each customer beginning with another: no seed leaves one out.
            kind = self._kinds[(self._no + self._stories) % len(self._kinds)]
            self._stories += 1
            await kind(f"{kind.__name__}:{self._no}:{self._stories}")
            self._book.stories[kind.__name__] += 1

    # ------------------------------------------------------------ calls

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call until it is answered. Nobody knows whether a call that was not has done its work."""
        while True:
            patience = self._chance.uniform(0.01, 0.3) if self._chance.random() < 0.2 else PATIENT_SECONDS
            try:
                async with asyncio.timeout(patience):
                    return await call()
            except (StoreUnavailable, TimeoutError) as error:
                self._book.failures[type(error).__name__] += 1

    async def _insist_without_a_key(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call until it is answered, in all patience: a call that fails says that it has done nothing."""
        while True:
            try:
                return await call()
            except StoreUnavailable as error:
                if "is not known" in str(error):
                    raise
                self._book.failures["without a key"] += 1

    async def _start(self, definition: str, key: str, input: Any = None) -> str:
        async def call() -> str:
            run = await self._client.start(
                definition, input, correlation_key=key, correlation_scope="forever", if_exists="return"
            )
            return run.id

        run_id = await self._insist(call)
        self._book.note_start(key, run_id)
        return run_id

    async def _send(self, target: str, name: str, payload: Any, dedup_key: str) -> bool:
        """Send a signal, sometimes twice; whether it was taken."""
        for _ in range(2 if self._chance.random() < 0.2 else 1):
            try:
                receipt = await self._insist(lambda: self._client.signal(target, name, payload, dedup_key))
            except NoTarget:
                assert dedup_key not in self._book.signals, f"{dedup_key} was acknowledged and then refused"
                return False
            self._book.note_signal(dedup_key, receipt)
        return True

    async def _send_all(self, signals: list[tuple[str, str, Any, str]]) -> list[bool]:
        """In any order, at the same time."""
        self._chance.shuffle(signals)
        return await asyncio.gather(*(self._send(*signal) for signal in signals))

    async def _end_of(self, run_id: str, is_right: Callable[[Any], bool]) -> None:
        self._book.endings[run_id] = is_right
        result = await self._insist(lambda: self._client.result(run_id, timeout="10s"))
        assert is_right(result), f"{run_id} ended with {result!r}"

    # ------------------------------------------------------------ stories

    async def courier(self, key: str) -> None:
        run_id = await self._start("courier", key, ITEMS)
        sent = [(self._chance.choice([run_id, key]), "item", no, f"{key}:item:{no}") for no in range(ITEMS)]
        assert all(await self._send_all(sent))
        await self._end_of(run_id, lambda result: sorted(result) == list(range(ITEMS)))

    async def pack(self, key: str) -> None:
        run_id = await self._start("pack", key)
        if self._chance.random() < 0.5:
            assert all(await self._send_all([(run_id, name, name, f"{key}:{name}") for name in NEEDED]))
        else:
            many = [SignalTo(run_id, name, name, f"{key}:{name}") for name in NEEDED]
            for one, receipt in zip(many, await self._insist(lambda: self._client.signal_many(many)), strict=True):
                self._book.note_signal(one.dedup_key or "", receipt)
        await self._end_of(run_id, lambda result: bool(result == {name: name for name in NEEDED}))

    async def family(self, key: str) -> None:
        run_id = await self._start("family", key)
        while not await self._send(f"{key}:child", "item", 7, f"{key}:item"):  # noqa: ASYNC110  # it is not born yet
            await asyncio.sleep(0.05)
        await self._end_of(run_id, lambda result: bool(result == [1, 2, [7]]))

    async def race(self, key: str) -> None:
        run_id = await self._start("race", key)
        await asyncio.sleep(self._chance.uniform(0.1, 0.2))
        self._book.refused += not await self._send(run_id, "answer", 1, f"{key}:answer")
        await self._end_of(run_id, lambda result: result in ("late", [1]))

    async def early_end(self, key: str) -> None:
        """It ends at the first word; what else is said is discarded or refused."""
        run_id = await self._start("keeper", key)
        words = [(run_id, "end", None, f"{key}:end"), *((run_id, "noise", no, f"{key}:noise:{no}") for no in range(3))]
        self._book.refused += (await self._send_all(words)).count(False)
        await self._end_of(run_id, lambda result: bool(result == "ended"))

    async def cancel(self, key: str) -> None:
        run_id = await self._start("keeper", key)
        assert await self._send(run_id, "noise", 0, f"{key}:noise")
        await self._insist(lambda: self._client.cancel(run_id, reason="changed my mind"))
        self._book.cancelled.add(run_id)

    async def till(self, key: str) -> None:
        """Whoever comes first opens the till, and it closes with the last."""
        for no in range(ITEMS):
            dedup_key = f"{key}:bill:{no}"
            receipt = await self._insist(
                lambda no=no, dedup_key=dedup_key: self._client.start_or_signal(  # type: ignore[misc]
                    "courier",
                    ITEMS,
                    correlation_key=key,
                    correlation_scope="forever",
                    name="item",
                    payload=no,
                    dedup_key=dedup_key,
                )
            )
            self._book.note_start(key, receipt.run_id or "")
            self._book.note_signal(dedup_key, receipt)
        await self._end_of(self._book.runs[key], lambda result: sorted(result) == list(range(ITEMS)))

    async def keep(self, key: str) -> None:
        """It stays, with words that nobody reads. They have no dedup key: only the store keeps them from doubling."""
        run_id = await self._start("keeper", key)
        for no in range(3 * ITEMS):
            receipt = await self._insist_without_a_key(
                lambda no=no: self._client.signal(run_id, "noise", no)  # type: ignore[misc]
            )
            self._book.note_signal(f"{key}:noise:{no}", receipt)
        self._book.kept.add(run_id)

    async def dawdle(self, key: str) -> None:
        run_id = await self._start("dawdler", key, round(self._chance.uniform(0.1, 1.0), 2))
        await self._end_of(run_id, lambda result: bool(result == "at last"))

    async def errand(self, key: str) -> None:
        """Tell a workflow all that it waits for: what comes early is held, and every word may be said again."""
        run_id = await self._start("errand", key, key)

        async def vote(by: str) -> None:
            async def asked() -> str | None:
                found = await self._client.interactions(run_id=run_id)
                return found[0].id if found else None

            while (id := await self._insist(asked)) is None:  # noqa: ASYNC110  # it does not ask yet
                await asyncio.sleep(0.05)
            await self._insist(lambda: self._client.answer(id, True, by=by, check=False))

        said = {"key": key, "no": 3}
        async with asyncio.TaskGroup() as group:
            for call in (
                lambda: self._client.complete(f"gate:{key}", 5, dedup_key=f"{key}:gate", hold="1h", check=False),
                lambda: self._client.emit("shop.news", said, id=f"{key}:news"),
            ):
                for _ in range(2 if self._chance.random() < 0.2 else 1):
                    group.create_task(self._insist(call))
            for by in ("ann", "ben"):
                group.create_task(vote(by))
        await self._end_of(run_id, lambda result: bool(result == ["begun", 5, 3, ["ann", "ben"], 7, "ended"]))


# ---------------------------------------------------------------- the books are checked


async def check(book: Book, client: Client) -> None:
    """Everything that was acknowledged is there, once, and every run stands where it should."""
    runs = {run.id: run for run in await all_runs(client)}
    assert set(book.runs.values()) <= runs.keys(), "an acknowledged start is lost"
    started = set(book.runs.values())
    strangers = [run for run in runs.values() if run.id not in started and run.parent_id not in started]
    assert strangers == [], "a start was done twice"
    admitted = {told.message_id for told in book.signals.values()}
    fates: Counter[str] = Counter()
    for run_id, run in runs.items():
        received, kept = await _signals(client, run_id)
        assert set(received) <= admitted, f"{run_id} has a signal that nobody was told of"
        assert received == kept, f"{run_id}: received {received}, and used, discarded or unread {kept}"
        fates += kept
        _check_end(book, run)
    assert fates == Counter(told.message_id for told in book.signals.values()), "an acknowledged signal is lost"
    families = [run_id for key, run_id in book.runs.items() if key.startswith("family")]
    errands = [run_id for key, run_id in book.runs.items() if key.startswith("errand")]
    children = Counter(run.parent_id for run in runs.values() if run.parent_id is not None)
    assert children == Counter(dict.fromkeys(families, 3)) + Counter(dict.fromkeys(errands, 1))
    for run_id in errands:
        told = Counter(entry.name for entry in await client.ledger(run_id))
        assert (told["step_completed"], told["await_unit_completed"]) == (2, 4), f"{run_id} was told twice: {told}"


def _check_end(book: Book, run: RunInfo) -> None:
    if run.id in book.cancelled:
        assert run.status == "cancelled", run
    elif run.id in book.kept:
        assert run.status == "waiting", run
    else:
        assert run.status == "completed", run
        is_right = book.endings.get(run.id)
        assert is_right is None or is_right(run.result), run


async def _signals(client: Client, run_id: str) -> tuple[Counter[str], Counter[str]]:
    """The signals that came to a run, and those that it used up, discarded or has not read, by the ledger."""
    entries = await client.ledger(run_id)
    received = [entry.data for entry in entries if entry.name == "signal_received"]
    bodies = Counter((data["signal"], data["digest"]) for data in received)
    assert all(count == 1 for count in bodies.values()), f"{run_id} was told the same thing twice: {bodies}"
    kept = [id for entry in entries for part in ("ids", "discarded") for id in entry.data.get(part, ())]
    kept += [signal.id for signal in await client.inbox(run_id)]
    return Counter(data["id"] for data in received), Counter(kept)


async def all_runs(client: Client) -> list[RunInfo]:
    found: list[RunInfo] = []
    cursor: str | None = None
    while True:
        page = await client.runs(cursor=cursor, limit=1000)
        found += page
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor
