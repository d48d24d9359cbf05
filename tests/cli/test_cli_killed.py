"""`bide dev` is killed at random moments while clients send, and send again what got no answer (H2, law 5, D12)."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import subprocess
import time
from typing import Any

import httpx

from tests.cli.conftest import PATIENCE_SECONDS, Bide
from tests.support.ports import free_port

KILLS = 4
KILLED_AGAIN_AT_THE_START = (2,)  # with its store open, as far as it got
LONGEST_PAUSE_SECONDS = 0.05
CLIENTS = 4
GATES = 24
PAUSE_SECONDS = 0.1  # clients that knock all the time would take the processor from the server that starts

PROGRAM = """
import bide

app = bide.App("killed", store="sqlite:///killed.db", lease="2s")


@app.workflow("gate")
async def gate(step, number: int):
    return await step.wait_for_signal("gate", signal=f"gate-{number}", timeout="1d")


@app.workflow("collect")
async def collect(step):
    items = []
    while True:
        got = await step.receive("next", "item", timeout="1d")
        if got.payload == "end":
            return items
        items.append(got.payload)
"""


class Killed:
    """The server that is killed and started again, and clients that go on whatever happens."""

    def __init__(self, bide: Bide, key: str) -> None:
        self._bide = bide
        self._port = free_port()  # one that nobody takes while the server is down
        self.http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self._port}",
            headers={"Authorization": f"Bearer {key}"},
            timeout=PATIENCE_SECONDS,
        )
        self.acknowledged = asyncio.Condition()
        self.count = 0
        self.repeated = 0

    def start(self) -> subprocess.Popen[str]:
        return self._bide.process("dev", "killed.py", "--port", str(self._port), "--no-reload", "--json")

    async def ready(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        assert line, await asyncio.to_thread(process.communicate)
        assert json.loads(line)["event"] == "ready"

    async def send(self, path: str, body: Any, key: str) -> Any:
        """Send until there is an answer, each time with the same idempotency key."""
        async with asyncio.timeout(4 * PATIENCE_SECONDS):
            for tries in itertools.count():
                try:
                    answer = await self.http.post(path, json=body, headers={"Idempotency-Key": key})
                except httpx.TransportError:
                    await asyncio.sleep(PAUSE_SECONDS)  # nobody listens yet
                    continue
                assert answer.status_code in (200, 201, 202), answer.text
                async with self.acknowledged:
                    self.count += 1
                    self.repeated += tries > 0
                    self.acknowledged.notify_all()
                return answer.json()
        raise AssertionError("the time limit ends it before")

    async def end_of(self, run_id: str) -> Any:
        """Its end: a look waits a minute at most, and a busy machine may take longer."""
        async with asyncio.timeout(4 * PATIENCE_SECONDS):
            while True:
                answer = await self.http.get(f"/v1/runs/{run_id}/result", params={"wait": "30s"})
                if answer.status_code != 202:
                    return answer.json()

    async def kill_after(self, process: subprocess.Popen[str], more: int, pause: float) -> None:
        """Kill it while clients are at work: so long after so many more of their requests were answered."""
        async with self.acknowledged:
            wanted = self.count + more
            await self.acknowledged.wait_for(lambda: self.count >= wanted)
        await self.kill(process, pause)

    async def kill(self, process: subprocess.Popen[str], pause: float) -> None:
        await asyncio.sleep(pause)
        process.kill()
        await asyncio.to_thread(process.wait)


async def test_what_was_acknowledged_before_a_kill_is_there_once(bide: Bide) -> None:
    """Issue: SIGKILL of `bide dev` at random moments, its start among them; every acknowledged answer is there once."""
    (bide.folder / "killed.py").write_text(PROGRAM)
    made = bide.finished(bide.process("keys", "create", "--app", "killed.py", "--json"))
    server = Killed(bide, made.json["key"])
    moments = random.Random(4711)
    process = server.start()
    await server.ready(process)
    runs = "/v1/runs"
    collector = (await server.send(runs, {"definition": "collect"}, "collect"))["id"]
    gates = [(await server.send(runs, {"definition": "gate", "input": n}, f"gate-{n}"))["id"] for n in range(GATES)]
    while len((await server.http.get("/v1/waits", params={"limit": 1000})).json()["items"]) < GATES + 1:
        continue  # each look takes its time

    sent: list[int] = []
    answered: list[int] = []
    numbers, doors = itertools.count(), iter(range(GATES))
    is_over = False

    async def client() -> None:
        while not is_over:
            number = next(numbers)
            await server.send(f"{runs}/{collector}/signals", {"name": "item", "payload": number}, f"item-{number}")
            sent.append(number)
            door = next(doors, None)
            if door is not None:
                await server.send(f"/v1/signals/gate-{door}/complete", {"data": door}, f"answer-{door}")
                answered.append(door)

    async with asyncio.TaskGroup() as clients:
        for _ in range(CLIENTS):
            clients.create_task(client())
        start_seconds = 0.0
        for kill in range(KILLS):
            pause = moments.uniform(0, LONGEST_PAUSE_SECONDS)  # else each would come at the end of a commit
            await server.kill_after(process, moments.randint(1, 3 * CLIENTS), pause)
            process, began = server.start(), time.monotonic()
            if kill in KILLED_AGAIN_AT_THE_START:
                await server.kill(process, moments.uniform(0.5, 1.0) * start_seconds)
                process = server.start()
            await server.ready(process)
            start_seconds = start_seconds or time.monotonic() - began
        is_over = True

    await server.send(f"{runs}/{collector}/signals", {"name": "item", "payload": "end"}, "end")
    collected = await server.end_of(collector)
    assert collected["status"] == "completed", collected
    assert sorted(collected["result"]) == sorted(sent)
    for door in answered:
        result = await server.end_of(gates[door])
        assert (result["status"], result["result"]) == ("completed", door)
    assert server.repeated >= KILLS, "a kill that no client noticed shows nothing"
    process.kill()
    await asyncio.to_thread(process.wait)
    await server.http.aclose()
    assert bide.finished(bide.process("audit", "--app", "killed.py")).code == 0
