"""§12: one client in four forms: in process and over HTTP, async and blocking. Each gives and raises the same."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

import bide
from bide import errors
from bide.client import remote
from bide.client.remote import RemoteClient
from bide.core.access import SCOPES, Key, key_hash, new_key
from bide.server.listening import listen, listener
from bide.stores.postgres import migrate

NAIVE = datetime(2100, 1, 1)  # noqa: DTZ001  # that is what is wrong with it
YES, NO, WRONG = {"approved": True}, {"approved": False}, {"approved": 7}
LARGE = "x" * 600_000
NAMES = count(1)  # of all forms, which share a store
NO_RUN = "run_01b8dac5b40000000000000000000000"
NO_WAIT, NO_TASK = NO_RUN.replace("run_", "wait_") + "_1", NO_RUN.replace("run_", "int_") + "_1_0"


class Approval(msgspec.Struct):
    approved: bool


paid = bide.Signal("paid", Approval)


def make_app(store: str) -> bide.App:
    app = bide.App("same", store=store, poll_interval="20ms")

    @app.workflow("gate")
    async def gate(step: bide.Step, name: str) -> Any:
        return await step.wait_for_signal("gate", signal=name, timeout="1h", returns=Approval)

    @app.workflow("task")
    async def task(step: bide.Step, event: Any) -> Any:
        return await step.ask("review", title="Fine?", form=Approval, timeout="1h")

    @app.workflow("given")
    async def given(step: bide.Step, event: Any) -> Any:
        return await step.ask("review", title="Fine?", form=Approval, timeout="1h", assignee="ann")

    @app.workflow("order", signals=[paid])
    async def order(step: bide.Step, event: Any) -> Any:
        return await step.receive("payment", "shipped", timeout="1h")

    @app.workflow("echo")
    async def echo(step: bide.Step, event: Approval) -> bool:
        return event.approved

    @app.workflow("broken", retries=0)
    async def broken(step: bide.Step, event: Any) -> Any:
        raise RuntimeError("it broke")

    @app.policy
    def rule(action: bide.Action) -> Any:
        return bide.Deny("not on Sundays") if action.kind == "cancel" and action.data == "sunday" else None

    return app


Call = Callable[..., Awaitable[Any]]


class Script:
    """What somebody does with a client, and what came of each call, without what differs between any two tries."""

    def __init__(self, client: Any, app: bide.App) -> None:
        self.client, self.app = client, app
        self.seen: dict[str, Any] = {}
        self._names: dict[str, str] = {}

    async def do(self, method: str, *arguments: Any, **options: Any) -> Any:
        found = getattr(self.client, method)
        if inspect.iscoroutinefunction(found):
            return await found(*arguments, **options)
        return await asyncio.to_thread(found, *arguments, **options)

    async def note(self, label: str, method: str, *arguments: Any, **options: Any) -> Any:
        try:
            found = await self.do(method, *arguments, **options)
        except Exception as error:
            facts = {name: value for name, value in vars(error).items() if not name.startswith("_")}
            self.seen[label] = self._plain((type(error), str(error), facts))
            return None
        self.seen[label] = self._plain(found)
        return found

    def fresh(self) -> str:
        return f"name-0-{next(NAMES)}"

    async def run(self, definition: str, input: Any = None, **options: Any) -> str:
        """A run that has come as far as it can by itself."""
        run = await self.app.client().start(definition, input, **options)
        await self.parked(run.id)
        return run.id

    async def parked(self, run_id: str) -> None:
        while (await self.app.client().get(run_id)).status in ("ready", "running"):  # noqa: ASYNC110  # nobody says so
            await asyncio.sleep(0)

    async def task(self, definition: str = "task") -> tuple[str, str]:
        [found] = await self.app.client().interactions(run_id=await self.run(definition))
        return found.id, found.wait_id

    def _plain(self, value: Any) -> str:
        if isinstance(value, (bide.Run, bide.SyncRun)):
            value = ("run", value.id, value.info.definition)
        text = re.sub(
            r"\d{4}-\d\d-\d\d[T ][\d:.]+(\+00:00|Z| UTC \([^)]*\))?|datetime\.datetime\([^)]*\)",
            "(moment)",
            repr(value),
        )
        text = re.sub(r"'(prev|hash|shown)': '\w+'|(prev|hash|shown|actor)='[^']*'", "…", text)
        return re.sub(r"[0-9A-Za-z]{19,}|name-\d+-\d+", lambda match: self._name(match[0]), text)

    def _name(self, id: str) -> str:
        return self._names.setdefault(id, f"<{len(self._names) + 1}>")


async def deliveries(s: Script, check: bool) -> None:
    """What is delivered, and what is refused: raised, or with `check=False` told."""
    name = s.fresh()
    await s.run("gate", name)
    await s.note("complete invalid", "complete", name, WRONG, check=check)
    await s.note("complete", "complete", name, YES, check=check)
    await s.note("complete late", "complete", name, YES, check=check)
    name = s.fresh()
    await s.run("gate", name)
    for label, data in (("first", YES), ("again", YES), ("otherwise", NO)):
        await s.note(f"complete {label}", "complete", name, data, dedup_key="key-1", check=check)
    await s.note("complete unknown", "complete", "nobody", YES, check=check)
    await s.note("complete bad name", "complete", "run_1", YES, check=check)
    name = s.fresh()
    first, _ = await s.run("gate", name), await s.run("gate", name)
    await s.note("collision", "complete", name, YES, check=check)
    await s.note("collision resolved", "complete", name, YES, run_id=first, check=check)
    run = await s.run("order", correlation_key=s.fresh())
    key = (await s.app.client().get(run)).correlation_key
    for label, payload in (("first", 1), ("again", 1), ("otherwise", 2)):
        await s.note(f"signal {label}", "signal", run, "seen", payload, "key-1", check=check)
    await s.note("signal to no name", "signal", "", "seen", check=check)
    await s.note("signal under no key", "signal", run, "seen", 1, "", check=check)
    await s.note("signal by key", "signal", key, bide.Signal("seen", int), 7, check=check)
    await s.note("signal without a name", "signal", run, "", check=check)
    await s.note("signal that is declared", "signal", run, "paid", WRONG, check=check)
    await s.note("signal for nobody", "signal", "nobody", "seen", check=check)
    await s.note("signal for no run", "signal", NO_RUN, "seen", check=check)
    done = await s.run("echo", YES)
    await s.note("signal too late", "signal", done, "seen", check=check)
    many = [bide.SignalTo(run, "seen", 1), bide.SignalTo("nobody", "seen", 2)]
    await s.note("many, one for nobody", "signal_many", many, check=check)
    await s.note("many", "signal_many", [bide.SignalTo(run, "seen", 1, "key-7")], check=check)
    await s.note("many otherwise", "signal_many", [bide.SignalTo(run, "seen", 2, "key-7")], check=check)
    await s.note("many without a name", "signal_many", [bide.SignalTo(run, "", 1)], check=check)
    both = {"correlation_key": s.fresh(), "name": "seen", "payload": 1, "check": check}
    await s.note("start or signal", "start_or_signal", "order", 1, tags={"a": "b"}, delay=timedelta(0), **both)
    await s.note("signal or start", "start_or_signal", "order", 1, **both)
    await s.note("start or signal nobody", "start_or_signal", "ordr", 1, **both)
    await s.note("start or signal misfit", "start_or_signal", "order", 1, **{**both, "name": "paid", "payload": WRONG})
    task, wait = await s.task()
    await s.note("answer invalid", "answer", task, WRONG, "ann", check=check)
    await s.note("answer to another thing", "answer", task, YES, "ann", shown="other", check=check)
    await s.note("answer", "answer", task, YES, "ann", check=check)
    await s.note("answer again", "answer", task, YES, "ann", check=check)
    await s.note("answer otherwise", "answer", task, NO, "ann", check=check)
    await s.note("answer wait otherwise", "answer", wait, NO, "ann", check=check)
    await s.note("answer unknown", "answer", NO_TASK, NO, "ann", check=check)
    await s.note("answer unknown wait", "answer", NO_WAIT, NO, "ann", check=check)
    task, _ = await s.task()
    for label, data in (("first", YES), ("again", YES), ("otherwise", NO)):
        await s.note(f"answer with a key, {label}", "answer", task, data, "ann", "key-1", check=check)
    task, _ = await s.task("given")
    await s.note("answer of another", "answer", task, YES, "bob", check=check)
    event = s.fresh()
    await s.note("emit", "emit", "news", 1, id=event, check=check)
    await s.note("emit again", "emit", "news", 1, id=event, check=check)
    await s.note("emit otherwise", "emit", "news", 2, id=event, check=check)
    await s.note("emit bad name", "emit", "news.*", 2, check=check)
    kept = (await s.app.client().unused(limit=1000))[-1].id
    await s.note("readdress to nobody", "readdress", kept, "nobody", check=check)
    await s.note("readdress unknown", "readdress", "msg_x", run, check=check)
    await s.note("readdress", "readdress", kept, run, check=check)


async def runs(s: Script) -> None:
    key = s.fresh()
    run = await s.note("start", "start", "order", {"n": 1}, correlation_key=key, tags={"a": "b", "c": key}, priority=3)
    await s.parked(run.id)
    await s.note("start twice", "start", "order", correlation_key=key)
    await s.note("start or get", "start", "order", correlation_key=key, if_exists="return")
    await s.note("start otherwise", "start", "order", correlation_key=key, if_exists="perhaps")
    await s.note("start nothing", "start", "ordr")
    await s.note("start of no version", "start", "order", version="7")
    await s.note("start with a misfit", "start", "echo", WRONG)
    await s.note("start later", "start", "order", delay=timedelta(hours=1))
    await s.note("start much later", "start", "order", delay="soon")
    await s.note("by tags", "runs", tags={"a": "b", "c": key}, limit=1)
    await s.note("by tags that nobody has", "runs", tags={"a": "b", "c": "other"})
    await s.note("by a key", "runs", correlation_key=key, status="waiting", definition="order")
    await s.note("by a status that is none", "runs", status="happy")
    await s.note("after a cursor that is none", "runs", cursor="x")
    await s.note("too many", "runs", limit=0)
    for name in ("", ".", "..", "/", "x" * 70_000):
        await s.note(f"get {name[:2]!r}", "get", name)
    dots = await s.run("order", correlation_key="..")
    await s.note("get what is called by dots", "get", "..")
    await s.app.client().cancel(dots)
    await s.note("get nothing", "get", NO_RUN)
    for method in ("ledger", "steps", "inbox", "progress", "explain", "cancel", "retry", "result"):
        await s.note(f"{method} of nothing", method, NO_RUN)
    parked = await s.run("order", correlation_key=s.fresh())
    for method in ("get", "ledger", "steps", "inbox", "progress", "explain"):
        await s.note(method, method, parked)
    await s.note("retry what goes well", "retry", run.id)
    await s.note("cancel on sunday", "cancel", run.id, reason="sunday")
    await s.note("result too early", "result", run.id, timeout="1ms")
    await s.note("cancel", "cancel", run.id, reason="enough")
    await s.note("result of what was cancelled", "result", run.id)
    done = await s.run("echo", YES)
    await s.note("result", "result", done, timeout="1m")
    await s.note("cancel too late", "cancel", done)
    failed = await s.run("broken")
    await s.note("result of what failed", "result", failed)
    await s.note("retry", "retry", failed)
    await s.note("retry from nowhere", "retry", failed, from_step="x")


async def waits(s: Script) -> None:
    task, wait = await s.task()
    run = (await s.app.client().wait(wait)).run_id
    await s.note("waits", "waits", run_id=run, kind="task", older_than=timedelta(0))
    await s.note("waits of a long time", "waits", run_id=run, older_than="999999d")
    await s.note("waits of all statuses", "waits", run_id=run, status=None)
    await s.note("interactions", "interactions", run_id=run)
    await s.note("interactions of some statuses", "interactions", run_id=run, status=("waiting", "completed"))
    await s.note("interactions of one status", "interactions", run_id=run, status="completed")
    await s.note("interactions of all statuses", "interactions", run_id=run, status=None)
    await s.note("wait", "wait", wait)
    await s.note("interaction", "interaction", task)
    for method in ("wait", "heartbeat", "interaction"):
        await s.note(f"{method} of nothing", method, NO_WAIT if method != "interaction" else NO_TASK)
    await s.note("claim", "claim", task, "ann")
    await s.note("claim by another", "claim", task, "bob")
    await s.note("release by another", "release", task, "bob")
    await s.note("release", "release", task, "ann")
    await s.note("assign", "assign", task, assignee="ann", reason="r")
    await s.note("claim what is for others", "claim", task, "bob")
    for label, until in (
        ("a span", timedelta(hours=2)), ("a moment", datetime(2100, 1, 1, tzinfo=UTC)), ("never", bide.FOREVER),
        ("nothing", None), ("a text", "3h"), ("what is none", "soon"), ("no time zone", NAIVE),
    ):  # fmt: skip
        await s.note(f"deadline: {label}", "update_wait", wait, deadline=until, reason="r")
    await s.note("no change", "update_wait", wait, reason="r")
    await s.note("many: dry", "fail_waits", run_id=run, reason="r", dry_run=True)
    await s.note("many: which", "cancel_waits", reason="r")
    await s.note("many: without a reason", "cancel_waits", reason=" ", run_id=run)
    await s.note("many: what is no filter", "cancel_waits", reason="r", run=run)
    await s.note("many: to whom", "update_waits", reason="r", run_id=run, to_group="all", deadline=bide.FOREVER)
    await s.note("many: answers, dry", "answer_waits", 7, reason="r", run_id=run, dry_run=True)
    await s.note("many: answers", "answer_waits", 7, reason="r", run_id=run, by="eve")
    await s.note("many: what is no JSON", "answer_waits", object(), reason="r", run_id=run)
    await s.note("many: an answer without a reason", "answer_waits", 7, reason="", run_id=run)
    await s.note("an answer with too long a reason", "answer", wait, True, reason="r" * 4001)
    await s.note("fail without a reason", "fail_wait", wait, "")
    await s.note("fail", "fail_wait", wait, "r")
    await s.note("fail again", "fail_wait", wait, "r")
    await s.note("cancel nothing", "cancel_wait", NO_WAIT, "r")
    await s.note("letters", "dead_letters")
    await s.note("no letter", "retry_dead_letter", "x")
    await s.note("discard no letter", "discard_dead_letter", "x")


async def checked(s: Script) -> None:
    await deliveries(s, check=True)


async def told(s: Script) -> None:
    await deliveries(s, check=False)


@asynccontextmanager
async def clients(app: bide.App) -> AsyncIterator[dict[str, Any]]:
    """The four of them, over one store, with an engine and a server in this process."""
    async with app.engine():
        runtime = await app.runtime()
        text = new_key(b"k" * 32)
        now = await runtime.store.now()
        key = Key(
            id="key_1", workspace="default", hash=key_hash(text), name="all", scopes=tuple(SCOPES), created_at=now
        )
        await runtime.store.add_key(key)
        stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(listen(listener(app.asgi(engine=False), "127.0.0.1", 0), stop, port.set_result))
        url = f"http://127.0.0.1:{await port}"
        blocking = [bide.SyncClient(app), bide.SyncClient(url, key=text)]
        try:
            async with bide.Client(url, text) as over_http:
                yield {
                    "in process": app.client(),
                    "over HTTP": over_http,
                    "blocking": blocking[0],
                    "blocking over HTTP": blocking[1],
                }
        finally:
            await asyncio.gather(*(asyncio.to_thread(client.close) for client in blocking))
            stop.set()
            await serving


@pytest.fixture(params=["sqlite", "postgres"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> bide.App:
    """On every store that more than one event loop can open."""
    if request.param == "sqlite":
        return make_app(f"sqlite:///{tmp_path}/same.db")
    url: str = request.getfixturevalue("postgres_used_url")
    await migrate(url)
    return make_app(url)


@pytest.mark.parametrize("script", [checked, told, runs, waits])
async def test_every_form_of_the_client_gives_and_raises_the_same(
    app: bide.App, script: Callable[[Script], Awaitable[None]]
) -> None:
    """§12, S10: results, classes of errors, what they know and what they say, and receipts of what was refused."""
    async with clients(app) as four:
        seen = {}
        for form, client in four.items():
            s = Script(client, app)
            await script(s)
            seen[form] = s.seen
        first = seen.pop("in process")
        different = [
            f"{form}, {label}:\n    {others[label]}\n    {first[label]}"
            for form, others in seen.items()
            for label in first
            if others[label] != first[label]
        ]
        assert not different, "\n".join(different)


def test_every_form_of_the_client_has_the_same_methods_with_the_same_parameters() -> None:
    """§12: names, order, kinds and defaults."""
    for name, method in inspect.getmembers(bide.Client, inspect.iscoroutinefunction):
        if not name.startswith("_"):
            theirs = [parameter.replace(annotation=None) for parameter in parameters(method)]
            for form in (RemoteClient, bide.SyncClient):
                ours = [parameter.replace(annotation=None) for parameter in parameters(getattr(form, name))]
                assert ours == theirs, (form, name)


def parameters(method: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(method).parameters.values())


async def test_a_client_over_http_joins_no_transaction() -> None:
    client = bide.Client("http://bide.test", http=httpx.AsyncClient())
    for call in (client.start("order", connection=object()), client.signal("x", "y", connection=object())):
        with pytest.raises(bide.ForeignConnectionError):
            await call
    with bide.SyncClient("http://bide.test") as blocking, pytest.raises(bide.BadInput, match="only the server knows"):
        _ = blocking.workspace


def answering(*answers: httpx.Response) -> Any:
    """A client whose server gives these answers, one after the other."""
    left = iter(answers)
    return bide.Client("http://bide.test", http=httpx.AsyncClient(transport=httpx.MockTransport(lambda _: next(left))))


@pytest.mark.parametrize("content", [b"<html>hello</html>", b"\xff\xfe", b"[]", b'{"id": 7}', b""])
async def test_an_answer_that_is_none_of_bides_is_an_error_of_bides(content: bytes) -> None:
    """A proxy's page, or the server of somebody else."""
    for status in (200, 202):
        with pytest.raises(bide.BideError, match="no answer of bide's"):
            await answering(httpx.Response(status, content=content)).get("run_1")
    for status in (302, 400, 404, 500):
        with pytest.raises(bide.BideError):
            await answering(httpx.Response(status, content=content)).get("run_1")


EVERY_CALL: dict[str, tuple[Any, ...]] = {
    "runs": (), "waits": (), "interactions": (), "unused": (), "dead_letters": (),
    "get": (NO_RUN,), "ledger": (NO_RUN,), "steps": (NO_RUN,), "inbox": (NO_RUN,), "progress": (NO_RUN,),
    "explain": (NO_RUN,), "result": (NO_RUN,), "cancel": (NO_RUN,), "retry": (NO_RUN,), "start": ("order",),
    "signal": (NO_RUN, "paid"), "signal_many": ([bide.SignalTo(NO_RUN, "paid")],), "complete": ("x",),
    "answer": (NO_TASK,), "emit": ("news",), "readdress": ("msg_1", NO_RUN), "wait": (NO_WAIT,),
    "interaction": (NO_TASK,), "claim": (NO_TASK, "ann"), "fail_wait": (NO_WAIT, "r"), "heartbeat": (NO_WAIT,),
}  # fmt: skip
LISTS = ("runs", "waits", "interactions", "unused", "dead_letters", "ledger", "steps", "inbox")
DELIVERIES = ("signal", "signal_many", "complete", "answer", "emit", "readdress")


def garbled(status: int = 200) -> httpx.Response:
    """An answer that says it is compressed, and is not."""
    body = httpx.ByteStream(b"not gzip")
    return httpx.Response(status, headers={"Content-Encoding": "gzip"}, stream=body)


@pytest.mark.parametrize("method", EVERY_CALL)
async def test_an_answer_that_cannot_be_unpacked_is_an_error_of_bides(method: str) -> None:
    for status in (200, 404, 503):
        with pytest.raises(bide.BideError, match="no answer of bide's"):
            await getattr(answering(garbled(status)), method)(*EVERY_CALL[method])


@pytest.mark.parametrize("method", LISTS)
async def test_items_that_are_none_are_an_error_of_bides(method: str) -> None:
    wrong: list[Any] = [[1], [{}], [{"id": 7}], 7]
    for items in wrong:
        with pytest.raises(bide.BideError, match="no answer of bide's"):
            await getattr(answering(httpx.Response(200, json={"items": items})), method)(*EVERY_CALL[method])


@pytest.mark.parametrize("method", DELIVERIES)
async def test_receipts_that_are_none_are_an_error_of_bides(method: str) -> None:
    """S10: also where the receipts of others can be read."""
    wrong: list[Any] = [[7], [{}], [{"outcome": 7}], 7]
    for receipts in wrong:
        problem = {"code": "conflict", "detail": "no", "receipts": receipts}
        for check in (True, False):
            call = getattr(answering(httpx.Response(409, json=problem)), method)
            with pytest.raises(errors.Conflict, match="no answer of bide's"):
                await call(*EVERY_CALL[method], check=check)


@pytest.mark.parametrize(
    "problem",
    [
        {"errors": [{}]}, {"errors": [7]}, {"facts": 7}, {"facts": {"run_id": [], "run_status": {}}},
        {"error": "DefinitionNotFound", "facts": {"name": 7}}, {"error": "RunIsFinal", "facts": {"run_id": 7}},
        {"error": "ItemsRejectedError", "facts": {"step": "s", "rejected": [[1, 2, 3]], "items": 1}},
        {"error": "LanguageError", "facts": {"problems": 7}}, {"error": "BideError"}, {"error": "os"},
    ],
    ids=str,
)  # fmt: skip
async def test_a_problem_that_is_odd_is_an_error_of_bides_that_can_be_shown(problem: dict[str, Any]) -> None:
    for status in (404, 409, 422, 500):
        with pytest.raises(bide.BideError) as raised:
            await answering(httpx.Response(status, json={"code": "odd", "detail": "no", **problem})).get("run_1")
        assert str(raised.value)


@pytest.mark.parametrize("content", [b'{"detail": "Not Found"}', b"<html>404</html>", b"", b"404 page not found"])
async def test_where_no_bide_answers_the_error_says_that_the_path_may_be_missing(content: bytes) -> None:
    """H4: the API may be mounted below a path, which a URL is easily written without."""
    for method in ("runs", "get", "signal"):
        with pytest.raises(errors.NotFound, match=r"no bide API answers at http://bide\.test.*mounted") as raised:
            await getattr(answering(httpx.Response(404, content=content)), method)(*EVERY_CALL[method])
        assert not isinstance(raised.value, (bide.RunNotFound, bide.NoTarget))


@pytest.mark.parametrize("said", ["0", "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:00", "soon", "-1", ""])
async def test_a_busy_server_is_asked_again_whenever_it_says(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry-After is a number of seconds or a date; what is neither is not heard."""
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.0)
    busy = httpx.Response(503, headers={"Retry-After": said}, json={})
    client = answering(busy, busy, httpx.Response(200, json={"items": [], "next_cursor": None}))
    assert await client.runs() == []


async def test_a_server_that_stays_busy_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.0)
    problem = {"code": "too_many_requests", "error": "TooManyRequests", "facts": {"retry_after": 7}, "detail": "no"}
    with pytest.raises(bide.TooManyRequests) as raised:
        await answering(*[httpx.Response(429, json=problem)] * remote.TRIES).runs()
    assert raised.value.retry_after == 7
