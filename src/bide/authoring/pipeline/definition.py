"""Pipelines: stages over streams of items (contract §8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from bide.authoring.checks import check_choice, check_text
from bide.authoring.machine import encode
from bide.authoring.pipeline.stages import CARDINALITIES, Cardinality, Kind, Placed, Stage, Terms, placed
from bide.authoring.pipeline.turn import PipelineTurn
from bide.authoring.pipeline.work import work
from bide.authoring.requesting import item_terms, limit_of, transport_name
from bide.authoring.terms import answer_schema
from bide.core.durations import Timeout
from bide.core.payloads import BadPayload, decode_as
from bide.core.records import Item as ItemRow
from bide.core.records import Run, Style, Turn
from bide.core.retrying import RetryPolicy
from bide.core.schema import schema_or_none
from bide.core.streaming import ItemOutcome
from bide.core.streams import START
from bide.engine.definitions import ItemSession, Session
from bide.errors import BadDefinition, BadInput

# What a stage does with a value; a function of two parameters is handed the `Item` too.
Work = Callable[[Any], Any] | Callable[[Any, Any], Any]


class Pipeline:
    """Stages, each extending the pipeline in place. It is registered when it is made.

    >>> import bide
    >>> app = bide.App("shop")
    >>> squares = app.pipeline("squares").expand(range).map(lambda n: n * n).collect(sum)
    """

    style: Style = "pipeline"
    cleanup: timedelta | None = None
    signals: Mapping[str, Any] = {}
    triggers: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        *,
        version: str = "1",
        retry: RetryPolicy | None = None,
        queue: str = "default",
        priority: int = 0,
        transports: Callable[[Any], None] | None = None,
        redact: str | None = None,
    ) -> None:
        self.name = name
        self.redact = redact
        self.version = version
        self.retry = retry if retry is not None else RetryPolicy()
        self.retries = self.retry.attempts - 1
        self.queue = queue
        self.priority = priority
        self._register = transports
        self.stages: list[Stage] = []
        self.places: tuple[Placed, ...] = ()
        self.ends_as_stream = False
        self.admits: tuple[str, ...] = ()

    @property
    def __bide_definition__(self) -> Pipeline:
        return self

    # ------------------------------------------------------------ building

    def admit(self, checkpoint: str) -> Pipeline:
        """Start a run for each checkpoint of this name that another pipeline publishes, with its value as the input.

        It comes before the stages. A key that was admitted is not admitted again (U12).

        >>> import bide
        >>> ledgers = bide.App().pipeline("ledgers").admit("payment.settled").map(print)
        """
        name = self._checkpoint(checkpoint)
        if self.stages:
            raise BadDefinition(f"pipeline {self.name!r}: admit({checkpoint!r}) comes before the stages")
        if name not in self.admits:
            self.admits = (*self.admits, name)
        return self

    def publish(
        self,
        checkpoint: str,
        *,
        key: Callable[[Any], str] | Callable[[Any, Any], str] | None = None,
        name: str | None = None,
        retry: RetryPolicy | None = None,
    ) -> Pipeline:
        """Hand what comes here to the pipelines that admit this checkpoint, as work of their own; it goes on unchanged.

        Each item of a stream is a checkpoint, as is the one thing. *key*, made from it, is what makes it happen once:
        the same key again, from whichever run, starts nothing. Without it each run and item counts for itself.

        >>> import bide
        >>> paid = bide.App().pipeline("pay").publish("payment.settled", key=lambda payment: payment["id"])
        """
        text = self._checkpoint(checkpoint)
        if key is not None and not callable(key):
            raise BadDefinition(f"pipeline {self.name!r}: publish({checkpoint!r}): key={key!r} is no function")
        title = name if name is not None else self._free_name(key, f"publish {text}", named=False)
        return self.add(Stage("publish", title, key, retry=retry, checkpoint=text))

    def _checkpoint(self, checkpoint: str) -> str:
        try:
            return check_text(checkpoint, "the checkpoint's name")
        except BadInput as error:
            raise BadDefinition(f"pipeline {self.name!r}: {error}") from error

    def expand(self, fn: Work, *, name: str | None = None, retry: RetryPolicy | None = None) -> Pipeline:
        """One input, many items: *fn* gives any iterable, or an async one. Asked again, it must give the same items.

        Items are stored as they come and go on at once. After a crash *fn* is called again, and what was stored is
        passed over.
        """
        return self._add("expand", fn, name, retry=retry)

    def map(
        self,
        fn: Work,
        *,
        name: str | None = None,
        retry: RetryPolicy | None = None,
        concurrency: int = 8,
    ) -> Pipeline:
        """Work on each item as it comes, or on the one thing that comes in; at least once.

        An item whose work fails is tried again by *retry*, then kept as a dead letter until a person decides.
        *concurrency* is how many items a worker does at the same time.
        """
        return self._add("map", fn, name, retry=retry, concurrency=concurrency)

    def filter(
        self,
        fn: Work,
        *,
        name: str | None = None,
        retry: RetryPolicy | None = None,
        concurrency: int = 8,
    ) -> Pipeline:
        """Go on with those items for which *fn* is true."""
        return self._add("filter", fn, name, retry=retry, concurrency=concurrency)

    def collect(self, fn: Work, *, name: str | None = None, retry: RetryPolicy | None = None) -> Pipeline:
        """Many items, one output: *fn* gets an iterator of the items in order, with `.rejected`."""
        return self._add("collect", fn, name, retry=retry)

    def wait_external(
        self,
        name: str,
        *,
        transport: Any,
        timeout: Timeout,
        cardinality: Cardinality = "ONE_TO_ONE",
        returns: Any = Any,
        on_item_timeout: Literal["fail", "reject"] = "fail",
        max_pending: int | None = None,
        key: Callable[[Any], str] | None = None,
        replay: Literal["item", "unit"] = "item",
        channel: str | None = None,
        assignee: str | None = None,
        group: str | None = None,
    ) -> Pipeline:
        """Send what comes in to the outside and wait for answers, checked against *returns*.

        *transport* is a name, or an object, which is registered with the app. ONE_TO_ONE over items is one wait with a
        request for each; the other cardinalities send one request, and take or give a list. *timeout* is what each
        request has; with `on_item_timeout="reject"` the stream goes on without an item that was not answered in time.
        *key* gives items business keys. At most *max_pending* requests are unanswered at once.

        Where many come back, the work on them goes on item by item, and what fails is tried again by itself. With
        `replay="unit"` a failure or a crash restarts the whole of what came back, all items from the first (U5).
        """
        what = f"pipeline {self.name!r}: stage {name!r}"
        try:
            limit = limit_of(timeout, what)
            labels: dict[str, Any] = {"channel": channel, "assignee": assignee, "group": group}
            check_choice(cardinality, CARDINALITIES, "cardinality")
            check_choice(replay, ("item", "unit"), "replay")
            if replay == "unit" and not cardinality.endswith("_MANY"):
                raise BadInput(f'replay="unit" is for what comes back as many, and the cardinality is {cardinality}')
            terms = Terms(
                transport=transport_name(transport),
                cardinality=cardinality,
                returns=Any if isinstance(returns, dict) else returns,
                timeout=limit,
                on_item_timeout=on_item_timeout,
                max_pending=max_pending,
                key=key,
                replay=replay,
                labels=labels,
                schema=answer_schema(returns),
            )
            item_terms(what=what, returns=returns, timeout=limit, **terms.asked(), **labels)
        except BadInput as error:
            raise BadDefinition(f"{what}: {error}") from error
        self.add(Stage("wait", name, terms=terms))
        if not isinstance(transport, str) and self._register is not None:
            self._register(transport)
        return self

    def _add(self, kind: Kind, fn: Callable[..., Any], name: str | None, **options: Any) -> Pipeline:
        if not callable(fn):
            raise BadDefinition(f"pipeline {self.name!r}: {kind}({fn!r}) needs a function")
        return self.add(Stage(kind, name if name is not None else self._free_name(fn, kind), fn, **options))

    def _free_name(self, fn: Callable[..., Any] | None, kind: str, *, named: bool = True) -> str:
        """The function's name, or the kind for one that has none; with a number where it is taken."""
        base = getattr(fn, "__name__", kind) if named else kind
        base = base if base.isidentifier() else kind
        taken = {stage.name for stage in self.stages}
        return next(n for n in (base, *(f"{base}-{i}" for i in range(2, len(taken) + 3))) if n not in taken)

    def add(self, stage: Stage) -> Pipeline:
        """Append a stage; raises `BadDefinition` where it cannot follow the ones before it."""
        self.places, self.ends_as_stream = placed(self.name, [*self.stages, stage])
        self.stages.append(stage)
        return self

    # ------------------------------------------------------------ running

    @property
    def first_step(self) -> str:
        return START

    def input_schema(self) -> dict[str, Any] | None:
        return schema_or_none(self.places[0].reads) if self.stages else None

    def encode_input(self, value: object, max_bytes: int) -> str:
        if not self.stages:
            raise BadInput(f"pipeline {self.name!r} has no stages")
        text = encode(value, max_bytes, f"the input of {self.name!r}")
        try:
            decode_as(text, self.places[0].reads)
        except BadPayload as error:
            raise BadInput(f"the input of {self.name!r} does not fit its type: {error}") from error
        return text

    async def take_turn(self, turn: Turn, session: Session) -> None:
        current: Turn | None = turn
        while current is not None:
            current = await PipelineTurn(self, current, session).take()

    # -- items

    def section_of(self, boundary: int) -> tuple[Placed, ...]:
        """The stages that items go through until the run's stage with this number."""
        first = next(place.index for place in reversed(self.places[:boundary]) if place.begins_stream)
        return self.places[first + 1 : boundary]

    def boundary_after(self, source: int) -> int:
        """The number of the stage that ends the stream which this stage begins; one past the last for the end."""
        rest = (place.index for place in self.places[source + 1 :] if place.ends_stream)
        return next(rest, len(self.places))

    def stage_name(self, index: int) -> str:
        return self.places[index].stage.name if index < len(self.places) else "(end)"

    def key_at(self, index: int, text: str) -> str | None:
        """The business key that a value gets which comes to this stage; None where it gets none there."""
        terms = self.places[index].stage.terms if index < len(self.places) else None
        if terms is None or terms.key is None:
            return None
        return str(terms.key(decode_as(text, self.places[index].reads)))[:200]

    def chunks(self, run: Run, boundary: int, stage: int) -> int:
        """How many items of a stage may be worked on at the same time."""
        return self.section_of(boundary)[stage].stage.concurrency

    async def work(self, run: Run, items: Sequence[ItemRow], session: ItemSession) -> list[ItemOutcome]:
        """Do the work of these items, all of one stage; an outcome for each."""
        return await work(self, run, items, session)
