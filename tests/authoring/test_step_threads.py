"""Plain functions that run past their time: a thread cannot be stopped (F1, D10)."""

from __future__ import annotations

import threading
from typing import Any

import bide
from bide.testing import world


def slow(log: list[str], release: threading.Event) -> bide.App:
    """An app whose step runs out of time at its first try, and until it is released."""
    app = bide.App()

    def block() -> str:
        first = not log
        log.append("begins")
        if first:
            release.wait(30)
        log.append("ends")
        return "done"

    @app.workflow("slow")
    async def workflow(step: bide.Step) -> str:
        retry = bide.RetryPolicy(attempts=2)
        return await step.options(timeout=0.01 if not log else "1m", retry=retry).run("block", block)

    return app


async def test_F1_the_next_try_waits_until_the_thread_of_the_last_one_has_ended(store_url: str) -> None:
    log, release = list[str](), threading.Event()
    async with world(slow(log, release), store=store_url) as there:
        timer = threading.Timer(0.2, release.set)  # long after the step's time is up
        timer.start()
        run = await there.start("slow")
        timer.join()
        assert log == ["begins", "ends"]  # it is not tried again, nor parked, while its thread runs
        retried = [entry.data for entry in await there.ledger(run.id) if entry.name == "step_retried"]
        assert "took longer than" in retried[0]["error"]["message"]
        await there.advance("1m")
        assert await there.result(run.id) == "done"
        assert log == ["begins", "ends", "begins", "ends"]


async def test_F1_a_thread_that_outlives_its_grace_holds_the_run_and_a_person_lets_it_go_on(store_url: str) -> None:
    """F1, D10."""
    log, release = list[str](), threading.Event()
    async with world(slow(log, release), store=store_url, thread_grace="20ms") as there:
        try:
            run = await there.start("slow")
            info = await there.get(run.id)
            assert (info.status, info.held) == ("ready", "stuck_thread")
            held = (await there.ledger(run.id))[-1]
            assert "'block'" in held.data["reason"]
            other: Any = await there.start("slow")  # its neighbours go on
            assert await there.result(other.id) == "done"
        finally:
            release.set()
        await there.retry(run.id)
        assert await there.result(run.id) == "done"
