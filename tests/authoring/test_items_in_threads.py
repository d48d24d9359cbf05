"""A function of a pipeline goes through the items in a thread, and the event loop reads them for it."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Sequence
from typing import Any

import pytest

from bide.authoring.pipeline.items import Items
from bide.core.records import Item, RunId


def row(number: int) -> Item:
    return Item(run_id=RunId("run_1"), section=1, item=number, status="done", stage=1, value=str(number))


async def two_pages(after: int) -> Sequence[Item]:
    return {-1: [row(0), row(1)], 1: [row(2)]}.get(after, [])


async def never(after: int) -> Sequence[Item]:
    await asyncio.Event().wait()
    return []


async def is_asked() -> None:
    """Until a thread has asked for a page, which is a task of the loop beside this one."""
    async with asyncio.timeout(120):
        while len(asyncio.all_tasks()) < 2:  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.001)


def go_through(items: Items, outcome: list[Any]) -> None:
    try:
        outcome.append(list(items))
    except RuntimeError as error:
        outcome.append(str(error))


async def test_all_pages_are_read_in_order() -> None:
    items = Items(two_pages, int, asyncio.get_running_loop(), 3)
    assert await asyncio.to_thread(list, items) == [0, 1, 2]


async def test_what_reading_raises_is_raised_in_the_thread() -> None:
    async def broken(after: int) -> Sequence[Item]:
        raise TimeoutError("the store took too long")

    with pytest.raises(TimeoutError, match="the store took too long"):
        await asyncio.to_thread(list, Items(broken, int, asyncio.get_running_loop(), 3))


@pytest.mark.parametrize("is_asked_before", [True, False])
def test_a_thread_whose_loop_is_gone_is_not_left_waiting(is_asked_before: bool) -> None:
    """D12: it would keep the process from ending."""
    outcome: list[Any] = []
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=go_through, args=(Items(never, int, loop, 3), outcome), daemon=True)
    if is_asked_before:
        thread.start()
        loop.run_until_complete(is_asked())
        for task in asyncio.all_tasks(loop):
            task.cancel()
        thread.join(1)
        loop.close()
    else:
        loop.close()
        thread.start()
    thread.join(120)
    assert not thread.is_alive()
    assert len(outcome) == 1
    assert "was stopped" in outcome[0]


def test_a_page_that_is_asked_for_and_never_read_leaves_no_coroutine_behind() -> None:
    outcome: list[Any] = []
    loop = asyncio.new_event_loop()  # it does not run: what is asked of it stays where it is
    thread = threading.Thread(target=go_through, args=(Items(two_pages, int, loop, 3), outcome), daemon=True)
    thread.start()
    thread.join(0.1)
    loop.close()
    thread.join(120)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()
    assert not thread.is_alive()
    assert "was stopped" in outcome[0]
