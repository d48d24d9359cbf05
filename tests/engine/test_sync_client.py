"""The client that blocks: the same calls as the async one, for scripts and sync web frameworks (contract §12)."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

import bide
from bide.engine.transport import Request, Undelivered
from bide.stores.postgres import migrate
from tests.support.staging import DEADLINE


@dataclass
class Order:
    item: str


@dataclass
class Placed:
    item: str
    paid_by: str


class Nowhere:
    """A transport that reaches nobody, whatever is tried."""

    name = "nowhere"

    async def dispatch(self, requests: Sequence[Request]) -> Sequence[Undelivered]:
        return [Undelivered("no such address", retry=False) for _ in requests]


def make_app(store: str) -> bide.App:
    app = bide.App("shop", store=store, poll_interval="20ms")

    @app.workflow("order")
    async def order(step: bide.Step, order: Order) -> Placed:
        paid = await step.receive("payment", "paid", timeout="1h")
        return Placed(order.item, paid.payload)

    @app.workflow("gate")
    async def gate(step: bide.Step, name: str) -> str:
        answer: str = await step.wait_for_signal("gate", signal=name, timeout="1h", returns=str)
        return answer

    @app.workflow("broken")
    async def broken(step: bide.Step) -> None:
        raise bide.NonRetryable("it is broken")

    app.transport(Nowhere())

    @app.workflow("each", retries=0)
    async def each(step: bide.Step, count: int) -> list[str]:
        asked = step.request_each("ask", range(count), transport="nowhere", timeout="1h", keep_rejected=True)
        return [answer.reason for answer in await asked if isinstance(answer, bide.Rejected)]

    return app


@pytest.fixture
def migrated_url(postgres_used_url: str) -> str:
    asyncio.run(migrate(postgres_used_url))
    return postgres_used_url


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> bide.App:
    """On every store that more than one event loop can open."""
    if request.param == "postgres":
        return make_app(request.getfixturevalue("migrated_url"))
    return make_app(f"sqlite:///{tmp_path}/shop.db")


@pytest.fixture
def sqlite_app(tmp_path: Path) -> bide.App:
    return make_app(f"sqlite:///{tmp_path}/shop.db")


@pytest.fixture
def engine(app: bide.App) -> Iterator[None]:
    """An engine of this process, on an event loop in another thread."""
    ready, stop = threading.Event(), threading.Event()

    async def work() -> None:
        async with app.engine():
            ready.set()
            await asyncio.to_thread(stop.wait)

    worker = threading.Thread(target=asyncio.run, args=(work(),))
    worker.start()
    assert ready.wait(DEADLINE)
    yield
    stop.set()
    worker.join(DEADLINE)
    assert not worker.is_alive()


def eventually(condition: Callable[[], object]) -> None:
    """Wait until a condition that nobody announces holds."""
    until = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < until
        os.sched_yield()


@pytest.mark.usefixtures("engine")
def test_a_script_starts_signals_and_gets_the_typed_result(app: bide.App) -> None:
    order: Any = app.registry.get("order")
    with bide.SyncClient(app) as client:
        run = client.start(order, Order("tea"), correlation_key="order:1", tags={"shop": "north"})
        assert client.signal("order:1", "paid", "ann", dedup_key="evt-1").outcome in ("woke", "queued")
        assert run.result(timeout="2m") == Placed("tea", "ann")
        assert run.refresh().status == "completed"
        assert client.result(run.id) == {"item": "tea", "paid_by": "ann"}
        assert client.get(run.id).tags == {"shop": "north"}
        assert [found.id for found in client.runs(definition="order")] == [run.id]
        assert client.waits(run_id=run.id) == []
        assert client.inbox(run.id) == []
        assert client.ledger(run.id)[-1].name == "run_completed"
        assert client.signal("order:1", "paid", "ann", dedup_key="evt-1").outcome == "duplicate"


@pytest.mark.usefixtures("engine")
def test_it_raises_the_same_errors(app: bide.App) -> None:
    with bide.SyncClient(app) as client:
        with pytest.raises(bide.NoTarget):
            client.signal("order:nobody", "paid")
        with pytest.raises(bide.RunNotFound):
            client.get("run_none")
        with pytest.raises(bide.DefinitionNotFound, match="broken, each, gate, order"):
            client.start("ordr")
        with pytest.raises(bide.RunFailedError, match="it is broken"):
            client.start("broken").result(timeout="2m")
        held = client.start("order", {"item": "tea"}, correlation_key="order:1")
        with pytest.raises(bide.DuplicateRun, match=held.id):
            client.start("order", {"item": "tea"}, correlation_key="order:1")
        assert client.start("order", {"item": "x"}, correlation_key="order:1", if_exists="return").id == held.id
        with pytest.raises(bide.RunTimeoutError):
            held.result(timeout="10ms")
        held.cancel("enough")
        with pytest.raises(bide.RunCancelledError):
            held.result()
        with pytest.raises(bide.NotHeld):
            client.retry(held.id)


@pytest.mark.usefixtures("engine")
def test_U7_a_script_retries_and_discards_what_could_not_be_sent(app: bide.App) -> None:
    """U7: what is retried in vain is a dead letter again; what is discarded rejects its item."""
    with bide.SyncClient(app) as client:
        run = client.start("each", 2)
        eventually(lambda: len(client.dead_letters()) == 2)
        first, second = client.dead_letters()
        assert {(letter.kind, letter.error) for letter in (first, second)} == {("dispatch", "no such address")}
        client.retry_dead_letter(first.id)
        eventually(lambda: len(client.dead_letters()) == 2)
        client.discard_dead_letter(first.id)
        told = client.progress(run.id)
        assert (told.expected, told.answered, told.rejected) == (2, 1, 1)
        client.discard_dead_letter(second.id)
        with pytest.raises(bide.DeadLetterNotFound):
            client.discard_dead_letter(second.id)
        assert run.result(timeout="2m") == ["it could not be sent: no such address"] * 2


@pytest.mark.usefixtures("engine")
def test_threads_share_one_client(app: bide.App) -> None:
    """What one thread waits for does not keep the others from their calls."""
    with bide.SyncClient(app) as client, ThreadPoolExecutor(8) as threads:
        runs = list(threads.map(lambda number: client.start("gate", f"gate-{number}"), range(8)))
        results = [threads.submit(run.result, "2m") for run in runs]
        for number, run in enumerate(runs):
            eventually(lambda run=run: client.waits(run_id=run.id, status=None))  # type: ignore[misc]  # of this turn
            client.complete(f"gate-{number}", f"yes {number}")
        assert [result.result(DEADLINE) for result in results] == [f"yes {number}" for number in range(8)]


def test_a_client_that_is_closed_says_so_and_lets_go_whoever_waits(app: bide.App) -> None:
    client = bide.SyncClient(app)
    run = client.start("gate", "gate-1")  # nobody works on it
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(run.result)
        eventually(result.running)
        client.close()
        with pytest.raises(bide.BadInput, match="closed"):
            result.result(DEADLINE)
    with pytest.raises(bide.BadInput, match="closed"):
        client.get(run.id)
    client.close()
    with bide.SyncClient(app) as other:
        assert other.get(run.id).status == "ready"


async def test_it_refuses_to_block_an_event_loop(sqlite_app: bide.App) -> None:
    with bide.SyncClient(sqlite_app) as client, pytest.raises(bide.BadInput, match=r"await app\.client"):
        client.start("gate", "gate-1")


def test_a_store_that_no_other_loop_can_see_is_refused() -> None:
    with bide.SyncClient(make_app("memory://")) as client, pytest.raises(bide.BadConfiguration, match="sqlite:///"):
        client.start("gate", "gate-1")


@pytest.mark.parametrize("app", ["postgres"], indirect=True)
@pytest.mark.usefixtures("engine")
def test_a_start_joins_the_callers_own_transaction(app: bide.App) -> None:
    """S11, with a psycopg connection that blocks."""
    dsn, _, schema = app.settings().store.partition("?schema=")
    with bide.SyncClient(app) as client, psycopg.connect(dsn, options=f"-c search_path={schema}") as mine:
        rolled_back = client.start("gate", "gate-1", connection=mine)
        mine.rollback()
        committed = client.start("gate", "gate-1", connection=mine)
        mine.commit()
        eventually(lambda: client.waits(run_id=committed.id))  # it is admitted after the commit
        with pytest.raises(bide.RunNotFound):
            client.get(rolled_back.id)


def test_a_connection_of_another_event_loop_is_refused(sqlite_app: bide.App) -> None:
    class AsyncConnection:
        async def execute(self) -> None: ...

    with (
        bide.SyncClient(sqlite_app) as client,
        pytest.raises(bide.ForeignConnectionError, match="belongs to"),
    ):
        client.start("gate", "gate-1", connection=AsyncConnection())
    assert inspect.iscoroutinefunction(psycopg.AsyncConnection.execute), "so this is how they are told apart"


FORKS = """
import os, sys, bide
app = bide.App("shop", store=sys.argv[1])
@app.workflow("nothing")
async def nothing(step: bide.Step) -> None: ...
client = bide.SyncClient(app)
client.start("nothing")
child = os.fork()
if child == 0:
    client.start("nothing")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(len(client.runs()))
"""


def test_a_process_that_was_forked_opens_its_own_and_a_forgotten_close_hangs_nothing(tmp_path: Path) -> None:
    """As web servers do that load the program first and fork then."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS, f"sqlite:///{tmp_path}/shop.db"],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},  # newer Pythons warn of every fork beside a thread
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")


# ---------------------------------------------------------------- the same surface


def public(owner: type) -> dict[str, Any]:
    return {name: getattr(owner, name) for name in dir(owner) if not name.startswith("_")}


@pytest.mark.parametrize(("waits", "blocks"), [(bide.Client, bide.SyncClient), (bide.Run, bide.SyncRun)])
def test_every_method_is_there_with_the_same_parameters(waits: type, blocks: type) -> None:
    """A new call of the client is one more line in client/blocking.py: `name = blocking(Client.name)`."""
    there = public(blocks)
    for name, method in public(waits).items():
        assert name in there, f"{blocks.__name__} has no {name}"
        if inspect.isfunction(method):
            mine, theirs = inspect.signature(there[name]), inspect.signature(method)
            assert list(mine.parameters.values()) == list(theirs.parameters.values()), name
            assert not inspect.iscoroutinefunction(there[name]), f"{blocks.__name__}.{name} does not block"
            assert there[name].__doc__ or not method.__doc__, f"{blocks.__name__}.{name} says nothing"
