"""What functions of a pipeline are handed beside values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from typing import Any

from bide.core.payloads import decode_as
from bide.core.records import Item as ItemRow
from bide.errors import BadInput

PAGE = 500
LOOK_SECONDS = 0.5  # between two looks whether the loop that reads is still there
STOPPED = "the engine was stopped while a function went through the items; it is called again"


@dataclass(frozen=True)
class Item:
    """What a stage may know of the item it works on: take it as a second parameter (U13).

    *index* is the item's number, from 0: the same at every try, so it can serve as an idempotency key. *request* and
    *answer* are what the last wait sent out and got back.

    >>> def charge(payment: dict, item: Item) -> dict:
    ...     return {"row": item.index + 1, "key": item.key, **payment}
    """

    index: int
    key: str | None = None
    request: Any = None
    answer: Any = None


@dataclass(frozen=True)
class Rejected:
    """An item that did not make it, and why.

    >>> def report(items):
    ...     return [f"row {bad.item + 1}: {bad.reason}" for bad in items.rejected]
    """

    item: int
    reason: str
    key: str | None = None
    value: Any = None


Pages = Callable[[int], Awaitable[Sequence[ItemRow]]]


class Items:
    """The items of a stream in order, read page by page: `for` in a function, `async for` in a coroutine function.

    >>> def report(items: Items) -> dict:
    ...     return {"total": sum(item["amount"] for item in items), "rejected": len(items.rejected)}
    """

    def __init__(self, pages: Pages, type_: Any, loop: asyncio.AbstractEventLoop, count: int) -> None:
        self._pages = pages
        self._type = type_
        self._loop = loop
        self._count = count

    def __len__(self) -> int:
        return self._count

    @property
    def rejected(self) -> Rejections:
        """Those that did not make it, in order."""
        return Rejections(self._pages, self._loop)

    def __iter__(self) -> Iterator[Any]:
        return (self._value(row) for row in _rows(self._pages, self._loop) if row.status == "done")

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for row in _rows_async(self._pages):
            if row.status == "done":
                yield self._value(row)

    def _value(self, row: ItemRow) -> Any:
        return decode_as(row.value, self._type)


class Rejections:
    def __init__(self, pages: Pages, loop: asyncio.AbstractEventLoop) -> None:
        self._pages = pages
        self._loop = loop

    def __iter__(self) -> Iterator[Rejected]:
        return (_rejected(row) for row in _rows(self._pages, self._loop) if row.status == "rejected")

    async def __aiter__(self) -> AsyncIterator[Rejected]:
        async for row in _rows_async(self._pages):
            if row.status == "rejected":
                yield _rejected(row)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _rejected(row: ItemRow) -> Rejected:
    return Rejected(row.item, row.error or "", row.key, decode_as(row.value, Any))


def _rows(pages: Pages, loop: asyncio.AbstractEventLoop) -> Iterator[ItemRow]:
    """Pages read from a thread: the event loop reads them meanwhile."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is loop:
        raise BadInput("a coroutine function goes through the items with `async for`: `for` would block everybody else")

    after = -1
    while page := _read(pages, after, loop):
        yield from page
        after = page[-1].item


def _read(pages: Pages, after: int, loop: asyncio.AbstractEventLoop) -> Sequence[ItemRow]:
    """Wait for a page as long as there is somebody to read it. A loop that was closed answers nobody, and a thread that
    waits for it would keep its process from ending."""

    async def read() -> Sequence[ItemRow]:
        return await pages(after)

    reading = read()
    try:
        asked = asyncio.run_coroutine_threadsafe(reading, loop)
    except RuntimeError as closed:
        reading.close()
        raise RuntimeError(STOPPED) from closed
    while not asked.done():
        if loop.is_closed():
            reading.close()
            raise RuntimeError(STOPPED)
        wait([asked], timeout=LOOK_SECONDS)
    return asked.result()


async def _rows_async(pages: Pages) -> AsyncIterator[ItemRow]:
    after = -1
    while page := await pages(after):
        for row in page:
            yield row
        after = page[-1].item
