"""One turn of a pipeline's run: the stages that are not done item by item, and the filling of streams."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bide.authoring.machine import encode, failure, message_of
from bide.authoring.pipeline.items import PAGE, Item, Items
from bide.authoring.pipeline.stages import Placed, Stage
from bide.authoring.pipeline.work import published
from bide.authoring.requesting import encode_terms, item_terms
from bide.authoring.telling import tell_move
from bide.core.commands import Continue, End, Move, TryAgain
from bide.core.payloads import decode_as
from bide.core.records import Item as ItemRow
from bide.core.records import Run, Turn
from bide.core.streaming import Ask, Feed, NewItem, Publication, Settle
from bide.core.streaming import Stage as FedStage
from bide.core.streams import encode_progress, progress_of
from bide.engine import tracing
from bide.engine.definitions import Session
from bide.errors import BadInput, Invalid, TooManyItems

if TYPE_CHECKING:
    from bide.authoring.pipeline.definition import Pipeline

ITEMS_AT_ONCE = 500
BYTES_AT_ONCE = 1024 * 1024


class LostClaim(Exception):
    """The run has another owner or has ended: stop, and commit nothing."""


class PipelineTurn:
    def __init__(self, pipeline: Pipeline, turn: Turn, session: Session) -> None:
        self._pipeline = pipeline
        self._turn = turn
        self._session = session
        self._limit = session.settings.max_payload_bytes
        self.run: Run = turn.run
        self._progress = progress_of(turn.run)

    async def take(self) -> Turn | None:
        """Do the stage that the run stands at; the next turn where it goes on at once."""
        name = self._pipeline.stage_name(self._progress.at)
        self._session.reached("before", name)
        try:
            move, feed = await self._stage()
            publishes = await self._published()
        except LostClaim:
            return None
        except Exception as error:
            tracing.broke(error)
            move, feed, publishes = self._after_error(error, name), None, ()
            tell_move(self.run, name, error, move)
        self._session.reached("after_code", name)
        turn = msgspec.structs.replace(self._turn, run=self.run)
        return await self._session.commit(turn, move, feed=feed, publishes=publishes)

    def _after_error(self, error: Exception, name: str) -> Move:
        failures = self.run.attempt + 1
        place = self._place()
        policy = place.stage.retry if place is not None and place.stage.retry is not None else self._pipeline.retry
        if isinstance(error, Invalid):
            return failure(type(error).__name__, error, name)
        if policy.gives_up(failures, error):
            return failure("StepFailed", error, name)
        delay = policy.pause(failures, self._session.ports.random())
        return TryAgain(state=self.run.state, delay=delay, error=f"{type(error).__name__}: {message_of(error)}")

    def _place(self) -> Placed | None:
        at = self._progress.at
        return self._pipeline.places[at] if at < len(self._pipeline.places) else None

    async def _stage(self) -> tuple[Move, Feed | None]:
        place = self._place()
        if place is None:
            return End(status="completed", result=await self._result()), None
        match place.stage.kind:
            case "wait":
                return await self._wait(place)
            case "expand":
                return await self._fill(place, await self._call(place, self._value(place)))
            case "collect":
                return self._give(await self._collect(place)), None
            case "publish":
                return self._at(place.index + 1, bytes(self._progress.value).decode()), None
            case _:
                return self._give(await self._call(place, self._value(place))), None

    async def _published(self) -> tuple[Publication, ...]:
        """The checkpoint that the run itself has come to, if it stands at one."""
        place = self._place()
        if place is None or place.stage.kind != "publish":
            return ()
        key = await self._call(place, self._value(place)) if place.stage.fn is not None else None
        return (published(place.stage, self.run, key, bytes(self._progress.value).decode(), None),)

    def _value(self, place: Placed) -> Any:
        return decode_as(bytes(self._progress.value).decode(), place.reads)

    def _give(self, value: Any) -> Move:
        """One thing came out: the run stands at the next stage."""
        at = self._progress.at
        text = encode(value, self._limit, f"the result of stage {self._pipeline.stage_name(at)!r}")
        return self._at(at + 1, text)

    def _at(self, at: int, text: str) -> Move:
        progress = msgspec.structs.replace(self._progress, at=at, value=msgspec.Raw(text.encode()))
        return Continue(step=self._pipeline.stage_name(at), state=encode_progress(progress))

    async def _call(self, place: Placed, value: Any) -> Any:
        given = await self._called(place, *((value, Item(0)) if place.stage.takes_item else (value,)))
        return await given if inspect.isawaitable(given) else given

    async def _called(self, place: Placed, *arguments: Any) -> Any:
        fn, is_async = place.stage.called(self._session.ports)
        return await fn(*arguments) if is_async else await self._session.in_thread(fn, *arguments)

    # ------------------------------------------------------------ streams

    async def _fill(self, place: Placed, source: Any, unit: int = 0) -> tuple[Move, Feed | None]:
        """Store what the stage gives, chunk by chunk; the last one goes with the park.

        What an earlier try stored is passed over, unless the whole *unit* is to be given anew (U5).
        """
        goes_on = self._is_filling and not unit
        feed = self._fed(place, self._progress.section + (0 if goes_on else 1), unit)
        first = self._progress.total if goes_on else 0
        waiting: list[NewItem] | None = None
        async for chunk in self._chunks(place, source, first):
            if waiting is not None:
                await self._feed(msgspec.structs.replace(feed, first=first, items=tuple(waiting)))
                if self._progress.restart:
                    return Settle(), None
                first += len(waiting)
            waiting = chunk
        return Settle(), msgspec.structs.replace(feed, first=first, items=tuple(waiting or ()), is_last=True)

    @property
    def _is_filling(self) -> bool:
        """Whether an earlier try of the stage stored items already."""
        return self._progress.section > 0 and bool(self._progress.boundary) and not self._progress.filled

    def _fed(self, place: Placed, section: int, unit: int) -> Feed:
        pipeline, boundary = self._pipeline, self._pipeline.boundary_after(place.index)
        return Feed(
            section=section,
            unit=unit,
            source_name=place.stage.name,
            boundary=boundary,
            boundary_name=pipeline.stage_name(boundary),
            stages=tuple(self._fed_stage(inner) for inner in pipeline.places[place.index + 1 : boundary]),
        )

    def _fed_stage(self, place: Placed) -> FedStage:
        if place.stage.terms is None:
            return FedStage(name=place.stage.name, kind="work")
        return FedStage(name=place.stage.name, kind="wait", details=self._details(place.stage, items=True))

    def _details(self, stage: Stage, *, items: bool) -> str:
        """The terms of a wait, as they are kept with it."""
        terms = stage.terms
        assert terms is not None
        most = self._session.settings.await_aggregate_max_output_items if terms.many_out else None
        asked = item_terms(
            what=f"stage {stage.name!r}",
            returns=Any,
            timeout=terms.timeout,
            items=items,
            most=most,
            **terms.asked(),
            **terms.labels,
        )
        asked = msgspec.structs.replace(asked, schema=terms.schema)
        return encode_terms(asked, self._session.ports.random_bytes(16))

    # ------------------------------------------------------------ one request

    async def _wait(self, place: Placed) -> tuple[Move, Feed | None]:
        """Send one request for all that came to this stage; or go on with its answer."""
        terms, answered = place.stage.terms, self._answered(place)
        assert terms is not None
        if answered:
            [row] = await self._session.answers(self.run, answered, -1, 1)
            answer = row.answer or "null"
            if not terms.many_out:
                return self._at(place.index + 1, answer), None
            unit = answered if terms.replay == "unit" else 0
            return await self._fill(place, msgspec.json.decode(answer), unit)
        if terms.many_in and self._progress.done == 0:
            if terms.many_out:
                return await self._fill(place, [])
            return self._at(place.index + 1, "null"), None
        if terms.many_in:
            most = self._session.settings.await_aggregate_max_input_items
            payload = await self._listed(
                f"the input of stage {place.stage.name!r}", most, "await_aggregate_max_input_items"
            )
        else:
            payload = bytes(self._progress.value).decode()
        stage = FedStage(
            name=place.stage.name,
            kind="wait",
            items=False,
            timeout=terms.timeout,
            details=self._details(place.stage, items=False),
        )
        progress = msgspec.structs.replace(self._progress, at=place.index, value=msgspec.Raw(b"null"))
        return Ask(stage=stage, payload=payload, state=encode_progress(progress)), None

    def _answered(self, place: Placed) -> int:
        """The number of this stage's wait, where its answer is stored; 0 where it is still to be asked."""
        woken_by, progress = self._turn.woken_by, self._progress
        if woken_by is not None and (woken_by.kind, woken_by.key) == ("request", place.stage.name):
            return woken_by.no
        return progress.unit if progress.unit and progress.source == place.index else 0

    async def _feed(self, feed: Feed) -> None:
        run = await self._session.record(self.run, feed=feed)
        if run is None:
            raise LostClaim
        self.run, self._progress = run, progress_of(run)
        self._session.reached("after_commit", feed.source_name)

    async def _chunks(self, place: Placed, source: Any, skipped: int) -> AsyncIterator[list[NewItem]]:
        if hasattr(source, "__aiter__"):
            async for chunk in self._chunks_of_async(place, source, skipped):
                yield chunk
            return
        if isinstance(source, (str, bytes)) or not isinstance(source, Iterable):
            raise BadInput(f"stage {place.stage.name!r} gave {type(source).__name__}, which is no iterable of items")
        iterator = itertools.islice(iter(source), skipped, None)
        number = skipped
        while chunk := await self._session.in_thread(self._take, place, iterator, number):
            assert isinstance(chunk, list)
            yield chunk
            number += len(chunk)

    def _take(self, place: Placed, values: Iterator[Any], number: int) -> list[NewItem]:
        """The next items, as many as one commit carries."""
        chunk: list[NewItem] = []
        size = 0
        for value in values:
            chunk.append(self._new_item(place, value, number + len(chunk)))
            size += len(chunk[-1].value)
            if len(chunk) >= ITEMS_AT_ONCE or size >= BYTES_AT_ONCE:
                break
        return chunk

    async def _chunks_of_async(self, place: Placed, source: Any, skipped: int) -> AsyncIterator[list[NewItem]]:
        chunk: list[NewItem] = []
        size, number = 0, 0
        async for value in source:
            number += 1
            if number <= skipped:
                continue
            chunk.append(self._new_item(place, value, number - 1))
            size += len(chunk[-1].value)
            if len(chunk) >= ITEMS_AT_ONCE or size >= BYTES_AT_ONCE:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk

    def _new_item(self, place: Placed, value: Any, number: int) -> NewItem:
        text = encode(value, self._limit, f"item {number} of stage {place.stage.name!r}")
        return NewItem(text, self._pipeline.key_at(place.index + 1, text))

    # ------------------------------------------------------------ boundaries

    async def _page(self, after: int) -> Sequence[ItemRow]:
        return await self._session.items(self.run, self._progress.section, after, PAGE)

    async def _collect(self, place: Placed) -> Any:
        items = Items(self._page, place.reads, asyncio.get_running_loop(), self._progress.done)
        return await self._called(place, items)

    async def _result(self) -> str:
        if not self._pipeline.ends_as_stream:
            return bytes(self._progress.value).decode()
        return await self._listed("the result of the pipeline", self._session.settings.await_aggregate_max_output_items)

    async def _listed(self, what: str, most: int, limit: str = "await_aggregate_max_output_items") -> str:
        """All items that made it, as one JSON list within the limits (U3, U13)."""
        if self._progress.done > most:
            raise TooManyItems(what, self._progress.done, most, limit)
        parts, size, after = [], 2, -1
        while page := await self._page(after):
            for row in page:
                if row.status == "done":
                    parts.append(row.value)
                    size += len(row.value) + 1
            if size > self._session.settings.max_unit_bytes:
                raise BadInput(f"{what} has more than max_unit_bytes ({self._session.settings.max_unit_bytes} bytes)")
            after = page[-1].item
        return f"[{','.join(parts)}]"
