"""What the engine knows of a program: how to start it and how to take one turn of it. The styles implement this."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, runtime_checkable

from bide.core.commands import Consumed, EventReceipt, Move
from bide.core.payloads import BadPayload, decode_as
from bide.core.records import Held, Interaction, Item, Run, Style, Turn, Unit
from bide.core.requests import Misfit
from bide.core.streaming import ItemOffer, ItemOutcome
from bide.core.tokens import Signer
from bide.core.topics import fits
from bide.engine.governor import Governor
from bide.engine.ports import Ports
from bide.engine.settings import Settings
from bide.engine.transport import Transport
from bide.errors import BadDefinition, DefinitionNotFound


class Session(Protocol):
    """A turn's contact with the engine, under one claim."""

    settings: Settings
    ports: Ports
    registry: Registry

    async def signer(self) -> Signer:
        """What resume tokens are made with."""

    async def record(self, run: Run, **history: Any) -> Run | None:
        """Commit steps and waits of a workflow and go on with the same turn; None where the claim is lost."""

    async def give_back(self, run: Run, hold: Held, reason: str) -> None:
        """Hold the run: a person must look."""

    async def commit(self, turn: Turn, move: Move, consumed: tuple[Consumed, ...] = (), **history: Any) -> Turn | None:
        """Commit what the turn led to; the next turn where the claim goes on, else None (also where it was lost)."""

    async def answers(self, run: Run, no: int, after: int, limit: int) -> Sequence[Interaction]:
        """A page of the interactions of one of the run's waits, by item."""

    async def unit(self, run: Run, no: int) -> Unit | None:
        """The counts of one of the run's requests."""

    async def items(self, run: Run, section: int, after: int, limit: int) -> Sequence[Item]:
        """A page of one of the run's streams, in the order of its items."""

    async def emit(self, run: Run, event_id: str, name: str, data: str, channel: str) -> EventReceipt:
        """Put an event on the stream of the run's workspace."""

    async def in_thread(self, call: Any, *arguments: Any) -> Any:
        """Run blocking user code beside the event loop."""

    def reached(self, point: str, step: str) -> None:
        """Tell whoever injects faults that a point was reached."""


class Definition(Protocol):
    """A named, versioned program."""

    name: str
    version: str
    style: Style
    queue: str
    priority: int
    retries: int
    cleanup: timedelta | None
    signals: Mapping[str, Any]  # declared signals and the types of their payloads (S13)
    redact: str | None  # names of fields that never reach a ledger, a list or an error (G4)
    triggers: tuple[str, ...]  # patterns of the events that start a run of it

    @property
    def first_step(self) -> str: ...

    def encode_input(self, value: object, max_bytes: int) -> str:
        """Check and encode an input; raises `Invalid`."""

    def input_schema(self) -> dict[str, Any] | None:
        """The JSON Schema of its input; None where anything goes."""

    async def take_turn(self, turn: Turn, session: Session) -> None:
        """Run user code from where the run stands until it parks, ends or loses its claim."""


class ItemSession(Protocol):
    """The contact of items' work with the engine, under the claims of these items."""

    settings: Settings
    ports: Ports

    async def interactions(self, run: Run, no: int, items: Sequence[int]) -> Sequence[Interaction]:
        """What was sent and answered for these items at one of the run's waits."""

    async def in_thread(self, call: Any, *arguments: Any) -> Any:
        """Run blocking user code beside the event loop."""

    def reached(self, point: str, step: str) -> None:
        """Tell whoever injects faults that a point was reached."""


@runtime_checkable
class Workable(Protocol):
    """A definition whose items want work: a pipeline."""

    name: str
    admits: Sequence[str]  # checkpoints that it starts a run for

    def chunks(self, run: Run, boundary: int, stage: int) -> int:
        """How many tasks may work on items of this stage at the same time."""

    async def work(self, run: Run, items: Sequence[Item], session: ItemSession) -> list[ItemOutcome]:
        """Do the work of these items, all of one stage; an outcome for each. Raises nothing that user code raised."""


class MessageSignature(Protocol):
    """What tells the messages of one provider from others'."""

    def check(self, headers: Iterable[tuple[str, str]], body: bytes, *, now: datetime) -> str:
        """The id of a genuine message; raises `BadSignature`."""
        ...


class TakesItems(Protocol):
    """Who does the work of items in this process."""

    def offer(self) -> ItemOffer | None:
        """What it can take; None where it takes nothing now."""

    def take(self, run: Run, items: Sequence[Item]) -> None:
        """Begin the work of items that a commit handed over."""


class Registry:
    """The definitions of one app, by name and version, and the policies that govern their runs.

    The version registered last is the one that new runs get.
    """

    def __init__(self) -> None:
        self.governor = Governor()
        self._newest: dict[str, Definition] = {}
        self._all: dict[tuple[str, str], Definition] = {}
        self._declared: dict[str, list[Definition]] = {}  # by the names of the signals that they declare
        self.workable: frozenset[str] = frozenset()  # the names of those whose items want work: asked at every look
        self.transports: dict[str, Transport] = {}
        self.notifiers: dict[str, Callable[..., Any]] = {}
        self.signatures: dict[str, MessageSignature] = {}
        self.groups: Callable[[str], Any] | None = None  # who is in which groups

    def add(self, definition: Definition) -> None:
        key = (definition.name, definition.version)
        if key in self._all:
            raise BadDefinition(
                f"{definition.name!r} version {definition.version!r} is registered already; "
                "give one of them another name or version="
            )
        self._all[key] = self._newest[definition.name] = definition
        for signal in definition.signals:
            self._declared.setdefault(signal, []).append(definition)
        if isinstance(definition, Workable):
            self.workable |= {definition.name}

    def add_transport(self, transport: Transport) -> None:
        """Make a transport known under its name; the same one again changes nothing."""
        known = self.transports.setdefault(transport.name, transport)
        if known is not transport:
            raise BadDefinition(
                f"another transport is registered as {transport.name!r}; give one of them another name="
            )

    def get(self, name: str, version: str | None = None) -> Definition:
        found = self._newest.get(name) if version is None else self._all.get((name, version))
        if found is None:
            wanted = name if version is None else f"{name}@{version}"
            raise DefinitionNotFound(wanted, tuple(sorted(self._newest)), self._versions(name))
        return found

    def _versions(self, name: str) -> tuple[str, ...]:
        return tuple(sorted(version for known, version in self._all if known == name))

    def find(self, name: str, version: str) -> Definition | None:
        return self._all.get((name, version))

    def misfits(self, signal: str, payload: str) -> tuple[Misfit, ...]:
        """The definitions that declare a signal of this name and cannot take this payload for it (S13)."""
        declaring = self._declared.get(signal)
        return tuple(_misfits(declaring, signal, payload)) if declaring is not None else ()

    @property
    def declares_signals(self) -> bool:
        return bool(self._declared)

    def triggered_by(self, event: str) -> list[Definition]:
        """The definitions that an event of this name starts a run of: of each name the version that new runs get."""
        return [
            definition
            for definition in self._newest.values()
            if any(fits(pattern, event) for pattern in definition.triggers)
        ]

    def admitting(self, checkpoint: str) -> list[Definition]:
        """The pipelines that a checkpoint of this name starts a run of: of each name the version that new runs get."""
        found = self._newest.values()
        return [each for each in found if isinstance(each, Workable) and checkpoint in each.admits]

    def names(self) -> frozenset[str]:
        return frozenset(self._newest)

    def __iter__(self) -> Iterator[Definition]:
        yield from self._all.values()


def _misfits(declaring: Iterable[Definition], signal: str, payload: str) -> Iterator[Misfit]:
    for definition in declaring:
        try:
            decode_as(payload, definition.signals[signal])
        except BadPayload as error:
            yield Misfit(definition.name, definition.version, str(error))
