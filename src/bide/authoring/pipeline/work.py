"""The work of one stage on some of its items: whatever user code does, outcomes come out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bide.authoring.machine import encode, message_of
from bide.authoring.pipeline.items import Item
from bide.authoring.pipeline.stages import Placed, Stage
from bide.authoring.telling import tell
from bide.core.durations import format_duration
from bide.core.payloads import decode_as
from bide.core.records import Item as ItemRow
from bide.core.records import Run
from bide.core.streaming import ItemOutcome, Publication
from bide.core.streams import progress_of
from bide.engine.definitions import ItemSession
from bide.errors import BadInput, Invalid

if TYPE_CHECKING:
    from bide.authoring.pipeline.definition import Pipeline

Function = Callable[..., Any]


async def work(pipeline: Pipeline, run: Run, items: Sequence[ItemRow], session: ItemSession) -> list[ItemOutcome]:
    section = pipeline.section_of(progress_of(run).boundary)
    place = section[items[0].stage]
    session.reached("before", place.stage.name)
    known = await _known(place, section, run, items, session)
    fn, is_async = place.stage.called(session.ports) if place.stage.fn is not None else (None, False)
    if is_async:
        outcomes = [
            await _in_loop(pipeline, place, fn, run, row, item, session) for row, item in zip(items, known, strict=True)
        ]
    else:
        outcomes = await session.in_thread(_in_thread, pipeline, place, fn, run, items, known, session)
    session.reached("after_code", place.stage.name)
    return outcomes


async def _known(
    place: Placed, section: Sequence[Placed], run: Run, rows: Sequence[ItemRow], session: ItemSession
) -> list[Item]:
    """What is told of each item. Requests and answers are read only for a function that asks for them."""
    waits = progress_of(run).waits[: rows[0].stage]
    last = next((no for no in reversed(waits) if no), 0)
    if not last or not place.stage.takes_item:
        return [Item(row.item, row.key) for row in rows]
    found = {each.item: each for each in await session.interactions(run, last, [row.item for row in rows])}
    known = []
    for row in rows:
        sent = found.get(row.item)
        request = decode_as(sent.payload, Any) if sent is not None else None
        answer = decode_as(sent.answer, Any) if sent is not None and sent.answer is not None else None
        known.append(Item(row.item, row.key, request, answer))
    return known


async def _in_loop(
    pipeline: Pipeline, place: Placed, fn: Function | None, run: Run, row: ItemRow, item: Item, session: ItemSession
) -> ItemOutcome:
    try:
        return _passed(pipeline, place, run, row, await _call(place, fn, row, item), session)
    except Exception as error:
        return _failed(pipeline, place, run, row, error, session)


def _in_thread(
    pipeline: Pipeline,
    place: Placed,
    fn: Function | None,
    run: Run,
    rows: Sequence[ItemRow],
    items: Sequence[Item],
    session: ItemSession,
) -> list[ItemOutcome]:
    """Several items in one go: handing each to a thread of its own would cost more than most of them take."""
    outcomes = []
    for row, item in zip(rows, items, strict=True):
        try:
            value = _call(place, fn, row, item)
            if inspect.isawaitable(value):
                raise TypeError("a plain function gave a coroutine; write `async def`")
            outcomes.append(_passed(pipeline, place, run, row, value, session))
        except Exception as error:
            outcomes.append(_failed(pipeline, place, run, row, error, session))
    return outcomes


def _call(place: Placed, fn: Function | None, row: ItemRow, item: Item) -> Any:
    if fn is None:
        return None
    value = decode_as(row.value, place.reads)
    return fn(value, item) if place.stage.takes_item else fn(value)


def _passed(pipeline: Pipeline, place: Placed, run: Run, row: ItemRow, value: Any, session: ItemSession) -> ItemOutcome:
    if place.stage.checkpoint is not None:
        publication = published(place.stage, run, value, row.value, row.item)
        key = pipeline.key_at(place.index + 1, row.value)
        return ItemOutcome(item=row.item, epoch=row.epoch, status="next", key=key, publishes=publication)
    if place.stage.kind == "filter":
        key = pipeline.key_at(place.index + 1, row.value) if value else None
        return ItemOutcome(item=row.item, epoch=row.epoch, status="next" if value else "dropped", key=key)
    what = f"what {place.stage.name!r} made of item {row.item}"
    text = encode(value, session.settings.max_payload_bytes, what)
    key = pipeline.key_at(place.index + 1, text)
    return ItemOutcome(item=row.item, epoch=row.epoch, status="next", value=text, key=key)


def published(stage: Stage, run: Run, key: Any, value: str, item: int | None) -> Publication:
    """The checkpoint that the run, or one of its items, has come to. Without a key of its own it counts for itself."""
    assert stage.checkpoint is not None
    if stage.fn is None:
        key = f"{run.id}:{stage.name}" if item is None else f"{run.id}:{stage.name}:{item}"
    elif not isinstance(key, (str, int)) or key == "":
        raise BadInput(f"the key of checkpoint {stage.checkpoint!r} is {key!r}; a text or a number is needed")
    return Publication(checkpoint=stage.checkpoint, key=str(key), value=value, item=item)


def _failed(
    pipeline: Pipeline, place: Placed, run: Run, row: ItemRow, error: Exception, session: ItemSession
) -> ItemOutcome:
    policy = place.stage.retry if place.stage.retry is not None else pipeline.retry
    progress = progress_of(run)
    failures = (progress.failures if progress.unit else row.attempts) + 1
    said = f"{type(error).__name__}: {message_of(error)}"
    step = f"{place.stage.name}, item {row.item}"
    if isinstance(error, Invalid) or policy.gives_up(failures, error):
        tell(run, step, error, "it is a dead letter", is_final=True)
        return ItemOutcome(item=row.item, epoch=row.epoch, status="dead", error=said)
    delay = policy.pause(failures, session.ports.random())
    tell(run, step, error, f"it is tried again in {format_duration(delay)}", is_final=False)
    return ItemOutcome(item=row.item, epoch=row.epoch, status="again", error=said, delay=delay)
