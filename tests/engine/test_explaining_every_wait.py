"""`bide explain` of a run at every kind of wait: what it says is true, and its command works (§11, law 12).

The command is run as it is printed, through the program's entry point, against the world's own HTTP API.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

import bide
from bide.cli import run as program
from bide.client import Run, looking
from bide.core.access import SCOPES, Key, key_hash, new_key
from bide.server import Server
from bide.testing import World, world
from tests.support.worlds import Ctx

SINCE = "since 2030-01-01 00:00:00 UTC (now)"
UNTIL = "2030-01-01 01:00:00 UTC (in 1h)"
MACHINE_FILE = """
machine held_up
  implements
    wait for {name}
      {how}
      timeout: "1h"
"""


def explained_app(folder: Path) -> bide.App:
    app = bide.App("shop")
    app.groups(lambda principal: ["leads"] if principal in ("ann", "bob") else [])

    @app.workflow("receive")
    async def receive(step: bide.Step) -> Any:
        return (await step.receive("r", "paid", timeout="1h")).payload

    @app.workflow("receive_all")
    async def receive_all(step: bide.Step) -> Any:
        return len(await step.receive_all("pack", "item", at_least=2, timeout="1h"))

    @app.workflow("twice")
    async def twice(step: bide.Step) -> Any:
        await step.receive("q", "paid", timeout="1h")
        return (await step.receive("r", "paid", timeout="1h")).payload

    @app.workflow("signal")
    async def signal(step: bide.Step) -> Any:
        return await step.wait_for_signal("gate", signal="gate-1", timeout="1h", returns=bool)

    @app.workflow("assigned")
    async def assigned(step: bide.Step) -> Any:
        return await step.wait_for_signal("gate", signal="gate-2", timeout="1h", assignee="ann", title="Sure?")

    @app.workflow("of_a_group")
    async def of_a_group(step: bide.Step) -> Any:
        return await step.wait_for_signal("gate", signal="gate-3", timeout="1h", group="leads")

    @app.workflow("reserved")
    async def reserved(step: bide.Step) -> Any:
        await step.reserve_signal("gate", signal="gate-4")
        await step.sleep("nap", "1h")
        return await step.wait_for_signal("gate", signal="gate-4", timeout="1h")

    @app.workflow("callback")
    async def callback(step: bide.Step) -> Any:
        return await (await step.callback("cb", timeout="1h", returns=int))

    @app.workflow("ask")
    async def ask(step: bide.Step) -> Any:
        return await step.ask("task", title="Ship it?", form=bool, timeout="1h", assignee="ann")

    @app.workflow("quorum_of_people")
    async def quorum_of_people(step: bide.Step) -> Any:
        decision = await step.ask("task", title="Ship it?", form=bool, timeout="1h", group="leads", quorum=2)
        return decision.outcome

    @app.workflow("event")
    async def event(step: bide.Step) -> Any:
        return (await step.wait_for_event("e", event="order.shipped", timeout="1h")).data

    @app.workflow("wildcard")
    async def wildcard(step: bide.Step) -> Any:
        match = "data.order == 7 && data.by == 'ann'"
        found = await step.wait_for_event("e", event="order.*", match=match, timeout="1h", channel="chat")
        return found.name

    @app.workflow("request")
    async def request(step: bide.Step) -> Any:
        return await step.request("pay", {"n": 1}, transport="interaction-api", returns=int, timeout="1h")

    @app.workflow("request_each")
    async def request_each(step: bide.Step) -> Any:
        return await step.request_each("pay", [1, 2], transport="interaction-api", returns=int, timeout="1h")

    @app.workflow("sleep")
    async def sleep(step: bide.Step) -> Any:
        return await step.sleep("nap", "1h")

    @app.workflow("own_timer")
    async def own_timer(step: bide.Step) -> Any:
        await asyncio.sleep(3600)

    tries: list[int] = []

    def print_it() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("on fire")
        return "printed"

    @app.workflow("tried_again")
    async def tried_again(step: bide.Step) -> Any:
        return await step.options(retry=bide.RetryPolicy(first="1h", most="1h")).run("print", print_it)

    @app.workflow("invoke")
    async def invoke(step: bide.Step) -> Any:
        return await step.invoke("child", "receive", timeout="1h")

    @app.workflow("first")
    async def first(step: bide.Step) -> Any:
        paid = step.receive("r", "paid", timeout="1h")
        gate = step.wait_for_signal("gate", signal="gate-5", timeout="1h")
        won = await step.first("either", paid, gate)
        return won.key

    @app.workflow("all")
    async def all_of(step: bide.Step) -> Any:
        both = [step.wait_for_signal(f"g{n}", signal=f"all-{n}", timeout="1h") for n in range(2)]
        return len(await step.all("all", *both))

    @app.workflow("quorum")
    async def quorum(step: bide.Step) -> Any:
        three = [step.wait_for_signal(f"g{n}", signal=f"q-{n}", timeout="1h") for n in range(3)]
        return len(await step.quorum("two", 2, *three))

    @app.machine("await")
    class Awaiting:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Await:
            return bide.Await("paid", then="end", timeout="1h")

        def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done("late" if ctx.timed_out else "paid")

    @app.machine("spawn")
    class Spawning:
        @bide.start
        def begin(self, ctx: Ctx) -> bide.Spawn:
            return bide.Spawn([("receive", None)], then="end", timeout="1h")

        def end(self, ctx: Ctx) -> bide.Done:
            return bide.Done(len(ctx.children))

    (
        app.pipeline("pipeline")
        .expand(lambda names: names or ["a", "b"])
        .wait_external("review", transport="interaction-api", timeout="1h", returns=bool)
        .collect(lambda items: len(list(items)))
    )

    for name, how in (("person", 'channel: "chat"'), ("back", "callback: true"), ("ci", 'event: "ci.done"')):
        text = MACHINE_FILE.replace("held_up", f"file_{name}").format(name=name, how=how)
        (folder / f"{name}.machine").write_text(text)
    app.load(folder)
    return app


class Explained:
    """A world, and the program that people would use from outside of it."""

    def __init__(self, there: World, captured: pytest.CaptureFixture[str]) -> None:
        self.world = there
        self._captured = captured

    async def cli(self, *arguments: str) -> str:
        """Run the program; what it prints. It must succeed."""
        self._captured.readouterr()
        code = await asyncio.to_thread(program, arguments)
        said = self._captured.readouterr()
        assert code == 0, f"bide {shlex.join(arguments)}: {said.err}"
        await self.world.settle()
        return said.out

    def said(self) -> Any:
        return self._captured.readouterr()

    async def start(self, definition: str) -> Run[Any]:
        run = await self.world.start(definition)
        assert run.status == "waiting"
        return run

    async def explain(self, run_id: str) -> str:
        return await self.cli("explain", run_id)

    async def follow(self, said: str, **names: str) -> None:
        """Do what an explanation says: run the first command that it shows, as it stands there."""
        for name, value in names.items():
            said = said.replace(name, value)
        await self.cli(*shlex.split(next(commands(said)))[1:])


def commands(said: str) -> Iterator[str]:
    """Of the lines of an explanation, the commands that they end with."""
    for line in said.splitlines():
        if found := re.search(r": (bide (?!worker).+)$", line):
            yield found[1]


class Announcing(uvicorn.Server):
    """Says when it takes requests."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_ready = asyncio.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.is_ready.set()


@asynccontextmanager
async def served(there: World, patch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The world's API on a port of this machine, and in the environment of the program."""

    async def opened() -> Any:
        return there.runtime

    text = new_key(b"k" * 32)
    key = Key(id="key_1", workspace="default", hash=key_hash(text), name="k", scopes=SCOPES, created_at=there.now)
    await there.runtime.store.add_key(key)
    config = uvicorn.Config(Server(opened), port=0, log_level="error", lifespan="off")
    server = Announcing(config)
    serving = asyncio.create_task(server.serve())
    await server.is_ready.wait()
    port = server.servers[0].sockets[0].getsockname()[1]
    patch.setenv("BIDE_URL", f"http://127.0.0.1:{port}")
    patch.setenv("BIDE_KEY", text)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await serving


@pytest.fixture
async def explained(
    store_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Explained]:
    monkeypatch.delenv("BIDE_APP", raising=False)
    async with world(explained_app(tmp_path), store_url) as there, served(there, monkeypatch):
        yield Explained(there, capsys)


RAISES = "is raised at"
AT_ONCE: dict[str, tuple[list[str], Any]] = {  # that one command lets go on: what is said, and the result
    "receive": (["for the signal 'paid' at 'r'", f"WaitTimeoutError {RAISES} 'r'"], {}),
    "signal": (["for an answer to 'gate-1' at 'gate'", f"SignalTimeoutError {RAISES} 'gate'"], True),
    "assigned": (["It asks: Sure?", "expected from ann", "--by ann"], {}),
    "callback": (["for the answer to a callback at 'cb'", "/resume/"], 1),
    "ask": (["for a person at 'task'", "It asks: Ship it?", "expected from ann", "--by ann"], True),
    "event": (["for an event 'order.shipped' at 'e'"], {}),
    "wildcard": (["for an event 'order.*' of which data.order == 7", "under any name that fits"], "order.example"),
    "request": (["for the answer to a request over interaction-api at 'pay'"], 1),
    "sleep": (["at 'nap'", "it sleeps", "then the sleep ends"], None),
    "own_timer": (["a timer of its own", "then that timer goes off"], None),
    "tried_again": (["to try step 'print' again", "failed with ValueError: on fire", "then attempt 2"], "printed"),
    "first": (["for the signal 'paid' at 'r'", "It is also waiting for an answer to 'gate-5'"], "r"),
    "await": (["for the signal 'paid'", "goes on with step 'end'"], "paid"),
    "file_person": (["for a person at 'person'", "by channel chat", "fails with AWAIT_TIMEOUT"], {}),
    "file_back": (["for the answer to a callback at 'back'", "fails with AWAIT_TIMEOUT"], {}),
    "file_ci": (["for an event 'ci.done' at 'ci'", "fails with AWAIT_TIMEOUT"], {}),
}


@pytest.mark.parametrize("definition", AT_ONCE)
async def test_law_12_a_wait_is_explained_and_the_command_shown_lets_the_run_go_on(
    explained: Explained, definition: str
) -> None:
    run = await explained.start(definition)
    said = await explained.explain(run.id)

    told, result = AT_ONCE[definition]
    for words in (f"{run.id} ({definition}@", SINCE, f"Its deadline is {UNTIL}", *told):
        assert words in said
    assert "audit" not in said

    await explained.follow(said)
    assert await explained.world.result(run.id) == result


async def test_F12_a_pack_counts_what_is_there(explained: Explained) -> None:
    run = await explained.start("receive_all")
    said = await explained.explain(run.id)
    assert f"for 2 of the signal 'item' at 'pack' {SINCE}: 0 of 2 are there." in said
    await explained.follow(said)

    said = await explained.explain(run.id)
    assert "1 of 2 are there" in said
    assert "audit" not in said
    await explained.follow(said)
    assert await explained.world.result(run.id) == 2


async def test_W11_a_group_is_named_and_one_of_it_answers(explained: Explained) -> None:
    run = await explained.start("of_a_group")
    said = await explained.explain(run.id)
    assert "expected from group leads" in said
    assert "and who answers in place of NAME" in said
    await explained.follow(said, NAME="bob")
    assert (await explained.world.get(run.id)).status == "completed"


async def test_F5_after_a_collision_the_command_says_which_run_is_meant(explained: Explained) -> None:
    run = await explained.start("signal")
    second = await explained.world.start("signal")
    assert (await explained.world.get(second.id)).status == "failed"
    assert await asyncio.to_thread(program, ["complete", "gate-1", "true"]) == 1
    assert "say which run is meant, with run_id= or `--run`" in explained.said().err
    said = await explained.explain(run.id)
    assert "Another run wanted the same signal id and was refused" in said
    assert f"bide complete gate-1 true --run {run.id}" in said
    await explained.follow(said)
    assert await explained.world.result(run.id) is True


async def test_F7_a_reserved_signal_id_is_answered_before_it_is_reached(explained: Explained) -> None:
    run = await explained.start("reserved")
    nap, early = commands(said := await explained.explain(run.id))
    assert f"at 'nap' {SINCE}: it sleeps" in said
    assert "It holds the signal id 'gate-4' for 'gate', which it has not reached" in said
    await explained.cli(*shlex.split(early)[1:])
    await explained.cli(*shlex.split(nap)[1:])
    assert (await explained.world.get(run.id)).status == "completed"


async def test_F9_the_url_of_a_callback_is_the_one_that_it_was_given(explained: Explained) -> None:
    run = await explained.start("callback")
    [url] = re.findall(r"lets it go on: (\S+)", await explained.explain(run.id))
    answer = await explained.world.http().post(url, json=7)
    assert answer.status_code == 200
    assert await explained.world.result(run.id) == 7


async def test_W4_a_key_that_may_only_look_is_not_shown_the_url_of_a_callback(explained: Explained) -> None:
    run = await explained.start("callback")
    looker = explained.world.http(scopes=["runs:read"])
    said = " ".join((await looker.get(f"/v1/runs/{run.id}/explanation")).json()["explanation"])
    assert "it is not shown: this key may not answer" in said
    assert "/resume/" not in said


async def test_W11_of_a_quorum_it_says_who_has_answered(explained: Explained) -> None:
    run = await explained.start("quorum_of_people")
    said = await explained.explain(run.id)
    assert "from group leads; 2 different people must answer." in said
    await explained.follow(said, NAME="ann")
    said = await explained.explain(run.id)
    assert "and 1 of 2 have (ann)" in said
    await explained.follow(said, NAME="bob")
    assert await explained.world.result(run.id) == "answered"


async def test_F11_of_many_requests_it_says_how_many_are_answered(explained: Explained) -> None:
    run = await explained.start("request_each")
    for answered in range(2):
        said = await explained.explain(run.id)
        assert f"for answers to 2 requests over interaction-api at 'pay' {SINCE}: {answered} of 2 are answered" in said
        assert f"Its deadline is {UNTIL}; then WaitTimeoutError is raised at 'pay'" in said
        await explained.follow(said)
    assert await explained.world.result(run.id) == [1, 1]


@pytest.mark.parametrize("definition", ["all", "quorum"])
async def test_F12_each_wait_of_several_is_explained(explained: Explained, definition: str) -> None:
    run = await explained.start(definition)
    for waits in range({"all": 2, "quorum": 3}[definition], 0, -1):
        if (await explained.world.get(run.id)).status == "completed":
            break
        said = await explained.explain(run.id)
        assert said.count(f"Its deadline is {UNTIL}; then SignalTimeoutError is raised") == waits
        await explained.follow(said)
    assert await explained.world.result(run.id) == 2


@pytest.mark.parametrize("definition", ["invoke", "spawn"])
async def test_M6_a_run_that_waits_for_a_child_leads_to_what_the_child_waits_for(
    explained: Explained, definition: str
) -> None:
    run = await explained.start(definition)
    said = await explained.explain(run.id)
    assert "is waiting for its 1 child" in said
    assert "0 of 1 have ended" in said
    assert f"Its deadline is {UNTIL}" in said
    of_child = await explained.cli(*shlex.split(next(commands(said)))[1:])
    await explained.follow(of_child)
    assert (await explained.world.get(run.id)).status == "completed"


async def test_U4_a_pipeline_says_which_stage_waits_for_how_many_answers(explained: Explained) -> None:
    run = await explained.start("pipeline")
    for answered in range(2):
        said = await explained.explain(run.id)
        assert f"requests over interaction-api at 'review' {SINCE}: {answered} of 2 are answered" in said
        assert f"Its deadline is {UNTIL}; then the run fails with AWAIT_TIMEOUT" in said
        await explained.follow(said)
    assert await explained.world.result(run.id) == 2


async def test_law_12_waits_that_are_over_do_not_hide_the_open_one(
    explained: Explained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "MOST_WAITS", 1)
    run = await explained.start("twice")
    await explained.follow(await explained.explain(run.id))
    assert "for the signal 'paid' at 'r'" in await explained.explain(run.id)


async def test_W4_another_process_shows_the_same_url_or_says_why_not(explained: Explained, store_url: str) -> None:
    """On a database that others share it cannot know their secrets; a file's are in the file."""
    if store_url.startswith("memory"):
        pytest.skip("no other process sees it")
    run = await explained.start("callback")
    own = (await explained.world.explain(run.id)).explanation
    other = bide.App("other", store=explained.world.runtime.settings.store)
    try:
        said = (await other.client().explain(run.id)).explanation
    finally:
        await other.close()
    if store_url.startswith("sqlite"):
        assert said[1] == own[1]
    else:
        assert "it is not shown: the secrets that make it are not at hand here" in said[1]
