"""Worker processes, the network and the server fail under load: nothing that was acknowledged may be lost or doubled.

`BIDE_CHAOS_SECONDS` makes the storm last longer, `BIDE_CHAOS_SEED` makes it another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest

import bide
from bide.client import Client
from bide.core.records import NO_RUN
from bide.core.requests import KeepPoison
from bide.engine import engine as engine_module
from bide.engine.engine import Engine
from bide.engine.runtime import Runtime
from bide.stores.postgres.schema import migrate
from tests.chaos import shop
from tests.chaos.commits import CommitProxy, Fate
from tests.chaos.customers import Book, Customer, all_runs, check
from tests.chaos.fleet import ROOT, Fleet, Worker, clean_environment, fleet
from tests.support.postgres import PostgresServer, available_postgres, connect, postgres_version, temporary_folder
from tests.support.proxy import PoolingProxy
from tests.support.staging import client_of, until

SECONDS = float(os.environ.get("BIDE_CHAOS_SECONDS", "0"))
SEED = int(os.environ.get("BIDE_CHAOS_SEED", "2030"))
PATIENCE = 120.0  # for what takes as long as the machine is busy
PAUSES = 12
NOTICED_WITHIN = 15.0
CUSTOMERS = 8
KINDS = 10  # of stories that customers live
WORKERS = 3
SETTINGS = {
    "sweep_interval": "2s",
    "lease": "600ms",
    "poll_interval": "100ms",
    "max_claims": "100000",
    "concurrency": "6",
    "grace": "20s",
}


@pytest.fixture(autouse=True)
def _without_settings_of_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("BIDE_")]:
        monkeypatch.delenv(name)


each_version = pytest.mark.parametrize("bin_dir", available_postgres(), ids=lambda path: f"v{postgres_version(path)}")


@pytest.fixture
def server(bin_dir: Path) -> Iterator[PostgresServer]:
    """A server of this test's own, which waits for its disk as a real one does."""
    with PostgresServer(bin_dir, temporary_folder()) as started:
        yield started


@asynccontextmanager
async def opened(url: str, **settings: str) -> AsyncIterator[tuple[Runtime, Client]]:
    """A client of the shop in this process."""
    app = bide.App("customers", store=url)
    app.configure(**{"poll_interval": "100ms", **settings})
    for definition in shop.app.registry:
        app.add(definition)
    try:
        runtime = await app.runtime()
        yield runtime, client_of(runtime)
    finally:
        await app.close()


async def audited(url: str) -> None:
    """Nothing is broken, and the program says so too."""
    async with opened(url) as (runtime, _):
        assert await runtime.store.audit() == []
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "bide", "audit", "--store", url),
        cwd=ROOT,
        env=clean_environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await program.communicate()
    assert program.returncode == 0, said.decode()
    assert said.decode().startswith("all invariants that were asked hold"), said.decode()


async def until_quiet(runtime: Runtime) -> None:
    """No run is ready or running any more."""

    async def quiet() -> bool:
        counts = await runtime.store.count_runs(None)
        return not counts.get("ready") and not counts.get("running")

    await until(quiet)


# ---------------------------------------------------------------- the storm


class Storm:
    """Faults, one after the other. Each is let loose on a system that makes progress."""

    def __init__(self, server: PostgresServer, proxy: CommitProxy, team: Fleet, book: Book, direct: Client) -> None:
        self._server = server
        self._proxy = proxy
        self._team = team
        self._book = book
        self._direct = direct  # past the proxy
        self._chance = Random(SEED)
        self.faults: Counter[str] = Counter()
        self.takeovers = 0

    async def rage(self) -> None:
        kinds: list[Callable[[], Awaitable[None]]] = [
            self.kill_a_worker,
            self.pause_a_worker,
            self.crash_the_server,
            self.cut_everything,
            self.cut_at_some_byte,
            self.cut_commits,
            self.end_all_sessions,
        ]
        until_at = time.monotonic() + SECONDS
        rounds = 0
        while rounds < 2 or time.monotonic() < until_at:
            rounds += 1
            self._chance.shuffle(kinds)
            for kind in kinds:
                await self._progress()
                await kind()
                self.faults[kind.__name__] += 1

    async def _progress(self) -> None:
        """Until the customers have finished some more stories."""
        wanted = self._book.stories.total() + self._chance.randint(2, 8)
        async with asyncio.timeout(PATIENCE):
            while self._book.stories.total() < wanted:  # noqa: ASYNC110  # nobody announces it
                await asyncio.sleep(0.02)

    async def kill_a_worker(self) -> None:
        worker = await self._team.any_ready(self._chance)
        worker.send(signal.SIGKILL)

        async def is_gone() -> bool:
            return not worker.is_ready

        await until(is_gone)  # nobody picks it for another fault while it dies

    async def crash_the_server(self) -> None:
        await asyncio.to_thread(self._server.restart, "immediate")

    async def cut_everything(self) -> None:
        for _ in range(self._chance.randint(1, 3)):
            self._proxy.cut()
            await self._progress()

    async def cut_at_some_byte(self) -> None:
        for _ in range(6):
            self._proxy.cut_after(self._chance.randint(1, 30_000), self._chance.choice(["client", "server"]))
            await self._progress()

    async def cut_commits(self) -> None:
        fates: list[Fate] = ["lost", "unanswered"]
        self._proxy.meet(*(self._chance.choice(fates) for _ in range(60)))
        async with asyncio.timeout(PATIENCE):
            await self._proxy.has_met.wait()

    async def end_all_sessions(self) -> None:
        admin = await connect(self._server.url())
        try:
            await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        finally:
            await admin.close()

    async def pause_a_worker(self) -> None:
        """Until another has taken over one of its runs; when it goes on, it must notice and say so.

        Some claims are not known to their own worker: the connection was cut under the answer that told it. Such a
        claim is just taken over, so the pause is tried again with another, a few times.
        """
        paused = 0
        while paused < PAUSES:
            worker = await self._team.any_ready(self._chance)
            held = await self._pause(worker)
            try:
                lost = await self._taken_over(held)
            finally:
                worker.send(signal.SIGCONT)
            if lost is None:
                await self._progress()  # it held nothing that could be taken over: that is no try
                continue
            if await self._says_so(worker, lost):
                self.takeovers += 1
                return
            paused += 1
        pytest.fail(f"{PAUSES} workers were paused past their lease, and none said that it lost a claim")

    async def _says_so(self, worker: Worker, run_id: str) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(NOTICED_WITHIN):
                while not worker.lost()[run_id]:  # noqa: ASYNC110  # its log announces nothing
                    await asyncio.sleep(0.05)
                return True
        return False

    async def _pause(self, worker: Worker) -> dict[str, int]:
        """Stop it in its tracks; the epochs of the runs that it holds."""
        worker.send(signal.SIGSTOP)

        async def paused() -> bool:
            return worker.is_paused()

        await until(paused)
        admin = await connect(self._server.url())
        try:
            rows = await admin.fetch("SELECT run_id, epoch FROM bide.queue WHERE worker = $1", worker.name)
        finally:
            await admin.close()
        return dict(map(tuple, rows))

    async def _taken_over(self, held: dict[str, int]) -> str | None:
        """The one of these runs that somebody claims because its lease has ended. What the paused worker sent before
        it was paused may still arrive, and end its claims in a good way."""
        try:
            return await self._first_taken_over(held)
        except TimeoutError:
            pytest.fail(f"nobody has taken over {held}:\n{await self._situation(held)}")

    async def _situation(self, held: dict[str, int]) -> str:
        """What the server and the workers are at."""
        admin = await connect(self._server.url())
        try:
            queue = await admin.fetch("SELECT now(), * FROM bide.queue WHERE run_id = ANY($1)", list(held))
            sessions = await admin.fetch(
                "SELECT pid, state, wait_event, now() - xact_start AS since, left(query, 120) AS query "
                "FROM pg_stat_activity WHERE backend_type = 'client backend' ORDER BY xact_start"
            )
            locks = await admin.fetch(
                "SELECT pid, mode, granted FROM pg_locks WHERE locktype IN ('transactionid', 'tuple')"
            )
        finally:
            await admin.close()
        logs = [f"{worker.name} {worker.log.read_text(errors='replace')[-1500:]}" for worker in self._team.ready()]
        return "\n".join([*map(repr, [*queue, *sessions, *locks]), *logs])

    async def _first_taken_over(self, held: dict[str, int]) -> str | None:
        async with asyncio.timeout(PATIENCE):
            while held:
                for run_id, epoch in list(held.items()):
                    claims = [
                        entry for entry in await self._direct.ledger(run_id) if entry.data.get("epoch", 0) > epoch
                    ]
                    if claims and claims[0].name == "run_claimed" and claims[0].data["from"] == "running":
                        return run_id
                    if claims or (await self._direct.get(run_id)).status != "running":
                        del held[run_id]
                await asyncio.sleep(0.05)
        return None


@each_version
async def test_nothing_acknowledged_is_lost_while_workers_network_and_server_fail(
    server: PostgresServer, tmp_path: Path
) -> None:
    await migrate(server.url())
    book, closing = Book(), asyncio.Event()
    async with (
        CommitProxy(server.host, server.port) as proxy,
        opened(server.url()) as (runtime, direct),
        opened(proxy.url(server.url())) as (_, client),
        fleet(proxy.url(server.url()), tmp_path, size=WORKERS, **SETTINGS) as team,
    ):
        storm = Storm(server, proxy, team, book, direct)
        async with asyncio.TaskGroup() as group:
            for no in range(CUSTOMERS):
                group.create_task(Customer(no, SEED, client, book, closing).live())
            await storm.rage()
            await proxy.heal()
            closing.set()
        await until_quiet(runtime)
        await check(book, direct)
        assert storm.takeovers >= 2, "each was counted by the worker that lost its claim"
        assert len(storm.faults) == 7
        assert min(storm.faults.values()) >= 2, storm.faults
        assert len(book.stories) == KINDS, book.stories
    await audited(server.url())


async def shop_day(url: str, server_url: str, folder: Path, **settings: str) -> None:
    """A few stories of every kind on workers and a client that reach the server by *url*, with nothing going wrong."""
    book = Book()
    async with (
        opened(server_url) as (runtime, direct),
        opened(url, **settings) as (_, client),
        fleet(url, folder, size=2, **{**SETTINGS, "lease": "30s", **settings}),
    ):
        customers = [Customer(no, SEED, client, book, asyncio.Event()) for no in range(KINDS)]
        async with asyncio.TaskGroup() as group:
            for customer in customers:
                group.create_task(customer.live(most=KINDS))
        await until_quiet(runtime)
        await check(book, direct)
        assert set(book.stories.values()) == {KINDS}, book.stories
    await audited(server_url)


async def test_a_load_without_hints_ends_complete(postgres_url: str, tmp_path: Path) -> None:
    await migrate(postgres_url)
    await shop_day(postgres_url, postgres_url, tmp_path, hints="false")


async def test_a_load_through_a_transaction_pooler_ends_complete(postgres_url: str, tmp_path: Path) -> None:
    await migrate(postgres_url)
    address = urlsplit(postgres_url)
    async with PoolingProxy(address.hostname or "", address.port or 5432) as pooler:
        await shop_day(pooler.url(postgres_url), postgres_url, tmp_path)


# ---------------------------------------------------------------- a commit that was lost with its server


@pytest.fixture(scope="module", params=available_postgres(), ids=lambda path: f"v{postgres_version(path)}")
def calm_server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A server where what is not committed stays in memory, as it may anyway."""
    calm = {"wal_writer_delay": "10s", "autovacuum": "off"}
    with PostgresServer(request.param, temporary_folder(), calm) as server:
        yield server


class Caller:
    """One call that a batch comes from, and what must be true of the store once the call was answered."""

    def __init__(self, runtime: Runtime, client: Client, direct: Client, keeper: str) -> None:
        self.runtime = runtime
        self.client = client
        self.direct = direct  # past the proxy
        self.keeper = keeper

    async def prepare(self) -> None:
        return None

    async def call(self) -> object:
        raise NotImplementedError

    async def is_done(self, told: object) -> bool:
        raise NotImplementedError


class Starting(Caller):
    async def call(self) -> object:
        return (await self.client.start("keeper")).id

    async def is_done(self, told: object) -> bool:
        return told in {run.id for run in await self.direct.runs()}


class Signalling(Caller):
    async def call(self) -> object:
        return await self.client.signal(self.keeper, "noise", 1, "once")

    async def is_done(self, told: object) -> bool:
        return (await self.direct.signal(self.keeper, "noise", 1, "once")).duplicate


class Cancelling(Caller):
    async def call(self) -> object:
        await self.client.cancel(self.keeper)
        return None

    async def is_done(self, told: object) -> bool:
        return (await self.direct.get(self.keeper)).status == "cancelled"


class Emitting(Caller):
    async def call(self) -> object:
        return await self.client.emit("shop.unheard", {"a": 1}, id="evt-1")

    async def is_done(self, told: object) -> bool:
        return (await self.direct.emit("shop.unheard", {"a": 1}, id="evt-1")).duplicate


class Holding(Caller):
    async def call(self) -> object:
        return await self.client.complete("gate:1", 5, hold="1h")

    async def is_done(self, told: object) -> bool:
        return (await self.direct.complete("gate:1", 6, hold="1h", check=False)).outcome == "late"


class HoldingOnce(Caller):
    async def call(self) -> object:
        return await self.client.complete("gate:1", 5, hold="1h", dedup_key="once")

    async def is_done(self, told: object) -> bool:
        return (await self.direct.complete("gate:1", 5, hold="1h", dedup_key="once")).duplicate


class Refused(Caller):
    async def call(self) -> object:
        return await self.client.signal("nobody", "noise", check=False)

    async def is_done(self, told: object) -> bool:
        return [kept.target for kept in await self.direct.unused()] == ["nobody"]


class Admitting(Caller):
    async def prepare(self) -> None:
        async with self.runtime.store.connection() as connection:
            await self.client.signal("nobody", "noise", connection=connection)

    async def call(self) -> object:
        return await self.runtime.store.admit(10)

    async def is_done(self, told: object) -> bool:
        is_kept = [kept.target for kept in await self.direct.unused()] == ["nobody"]
        return is_kept and not (await self.runtime.store.admit(10)).replies


class Discarding(Caller):
    async def prepare(self) -> None:
        poison = KeepPoison(workspace="default", run_id=NO_RUN, id="poison:1", text="{", reason="no JSON")
        await self.runtime.store.execute([poison])

    async def call(self) -> object:
        await self.client.discard_dead_letter("poison:1")
        return None

    async def is_done(self, told: object) -> bool:
        return not list(await self.direct.dead_letters())


CALLERS = [Starting, Signalling, Cancelling, Emitting, Holding, HoldingOnce, Refused, Admitting, Discarding]


@pytest.mark.parametrize("caller", CALLERS, ids=lambda kind: kind.__name__.lower())
async def test_a_commit_that_died_with_the_server_is_not_taken_for_one_that_came_after_it(
    calm_server: PostgresServer, caller: type[Caller]
) -> None:
    """A server that crashed gives out the numbers of transactions that it lost again. One that was lost must not be
    acknowledged because another was committed under its number."""
    server = calm_server
    url = f"{server.url()}?schema=bide_{caller.__name__.lower()}"
    await migrate(url)
    async with (
        CommitProxy(server.host, server.port) as proxy,
        opened(proxy.url(url), hints="false") as (behind, client),
        opened(url, hints="false") as (runtime, direct),
    ):
        one = caller(behind, client, direct, (await client.start("keeper")).id)
        await one.prepare()
        proxy.meet("held")
        calling = asyncio.create_task(one.call())
        await proxy.has_met.wait()
        proxy.refuse()
        await asyncio.to_thread(server.restart, "immediate")
        others = [await direct.start("keeper") for _ in range(10)]  # one of them has the number by now
        proxy.let_go()
        await proxy.heal()
        assert await one.is_done(await calling)
        assert {other.id for other in others} <= {other.id for other in await direct.runs()}
        assert await runtime.store.audit() == []


async def test_an_answer_that_was_held_and_used_before_its_sender_could_ask_is_not_held_again(
    postgres_url: str,
) -> None:
    """Its rows are gone by then; the run that took it tells of it (F7)."""
    await migrate(postgres_url)
    server = urlsplit(postgres_url)
    assert server.hostname is not None
    async with (
        CommitProxy(server.hostname, server.port or 5432) as proxy,
        opened(proxy.url(postgres_url), hints="false") as (_, client),
        opened(postgres_url) as (runtime, direct),
        Engine(runtime),
    ):
        await client.start("keeper")
        proxy.meet("unanswered")
        calling = asyncio.create_task(client.complete("gate:7", 5, hold="1h"))
        await proxy.has_met.wait()
        proxy.refuse()
        errand = await direct.start("errand", "7")

        async def has_its_answer() -> bool:
            return any(entry.name == "await_answer_received" for entry in await direct.ledger(errand.id))

        await until(has_its_answer)
        await proxy.heal()
        assert (await calling).outcome == "queued"
        assert (await direct.complete("gate:7", 6, check=False)).outcome == "late"
        assert await runtime.store.audit() == []


# ---------------------------------------------------------------- retention


async def test_retention_in_small_batches_under_load_spares_live_runs_and_their_waits(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(postgres_url)
    monkeypatch.setattr(engine_module, "DELETED_AT_ONCE", 3)
    settings = {"retention": "100ms", "sweep_interval": "20ms", "poll_interval": "20ms"}
    async with (
        opened(postgres_url, **settings) as (runtime, client),
        opened(postgres_url, **settings) as (rival, _),
        Engine(runtime),
        Engine(rival),
    ):
        keepers = [await client.start("keeper", tags={"is": "live"}) for _ in range(10)]
        for keeper in keepers:
            await client.signal(keeper.id, "noise", 1, "noise")
        family = await client.start("family", correlation_key="live", tags={"is": "live"})

        async def all_live_wait() -> bool:
            return [run.status for run in await client.runs(tags={"is": "live"})] == ["waiting"] * 11

        async def two_children_ended() -> bool:
            runs = await all_runs(client)
            return sum(run.parent_id == family.id and run.status == "completed" for run in runs) == 2

        await until(two_children_ended)
        await until(all_live_wait)
        load = [await client.start("echo", no, tags={"is": "load"}) for no in range(150)]
        load += [await client.start("family", correlation_key=f"load:{no}", tags={"is": "load"}) for no in range(5)]
        for no in range(5):
            await until(lambda no=no: delivered(client, f"load:{no}:child"))  # type: ignore[misc]

        async def load_is_gone() -> bool:
            return not any(run.tags.get("is") == "load" for run in await all_runs(client))

        await until(load_is_gone)
        await until(lambda: only_children_of(client, family.id))
        assert [run.status for run in await client.runs(tags={"is": "live"})] == ["waiting"] * 11
        assert len(await client.waits(limit=1000)) == 12, "of ten keepers, the family and its waiting child"
        for keeper in keepers:
            assert [signal.name for signal in await client.inbox(keeper.id)] == ["noise"]
            assert (await client.signal(keeper.id, "noise", 1, "noise")).outcome == "duplicate"
        assert await runtime.store.audit() == []
        await delivered(client, "live:child")
        for keeper in keepers:
            await client.signal(keeper.id, "end")

        async def all_is_gone() -> bool:
            return not await all_runs(client)

        await until(all_is_gone)
        assert await client.waits(status=None) == []
        assert await runtime.store.audit() == []


async def delivered(client: Client, key: str) -> bool:
    return (await client.signal(key, "item", 7, check=False)).outcome in ("woke", "queued")


async def only_children_of(client: Client, run_id: str) -> bool:
    return {run.parent_id for run in await all_runs(client)} <= {None, run_id}
