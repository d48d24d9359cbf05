"""What a store must lock and read before it lets the core decide.

Two questions, in the order of the protocol: which runs to lock (from the command alone), and, once they are locked
and read, which further rows the decisions rest on. Reading those in a later statement than the lock is what makes
park and delivery meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from bide.core.batch import NameKey, RowKey
from bide.core.checkpoints import admission_name
from bide.core.commands import (
    Admit,
    AdmitCheckpoint,
    AnyCommand,
    Cancel,
    CancelChildren,
    CommitTurn,
    Complete,
    Deliver,
    DeliverMany,
    Emit,
    End,
    FireTimer,
    KeepUnused,
    NoteDenial,
    Once,
    Park,
    Restore,
    Start,
    StartOrSignal,
)
from bide.core.exchanging import AnyExchangeCommand, ExpireItems, MarkDispatched, Reject, TakeIn
from bide.core.holding import chores_of, held_in, is_held
from bide.core.matching import counts_a_pack, dedup_names
from bide.core.once import once_name
from bide.core.outside import ItemKey, LetterKey
from bide.core.people import dedup_name
from bide.core.records import FINAL, REPLAYED, Name, Run, RunId, Wait
from bide.core.requests import Answer, ChangeWait, Fail, HandTask, LetGo, SettleChore, SettleDeadLetter, Withdraw
from bide.core.streaming import AnyItemCommand, ClaimItems, FinishItems, RenewItems
from bide.core.streams import item_of_letter, progress_of

Named = tuple[RunId, str]  # the signals of a run that have this name
ANY_NUMBER = 1_000_000_000  # of runs

COMPOUND: frozenset[type] = frozenset({StartOrSignal, DeliverMany, Admit, Once})


def parts(commands: Sequence[AnyCommand]) -> Sequence[AnyCommand]:
    """The commands with those of several parts taken apart; most batches have none, and are asked for often."""
    if COMPOUND.isdisjoint(map(type, commands)):
        return commands
    return [part for command in commands for part in _parts_of(command)]


def _parts_of(command: AnyCommand) -> Iterator[AnyCommand]:
    match command:
        case StartOrSignal():
            yield command.start
            yield command.deliver
        case DeliverMany():
            yield from command.deliveries
        case Admit():
            yield command.command
        case Once():
            yield from _parts_of(command.command)
        case _:
            yield command


def may_wake(commands: Sequence[AnyCommand]) -> int:
    """How many runs a batch may let go on: an event any number, every other command about one."""
    return ANY_NUMBER if Emit in map(type, commands) else len(commands)


def signal_lookups(commands: Sequence[AnyCommand]) -> set[NameKey]:
    """The signal ids whose wait must be looked up before anything can be locked."""
    return {(c.workspace, "signal", c.signal_id) for c in parts(commands) if isinstance(c, Complete)}


def with_waits(commands: Iterable[AnyCommand], names: Iterable[Name]) -> list[AnyCommand]:
    """The commands with completions addressed to the waits that hold their signal ids, where one does."""
    holders = {(name.workspace, name.name): name for name in names}
    return [_with_wait(command, holders) for command in commands]


def _with_wait(command: AnyCommand, holders: Mapping[tuple[str, str], Name]) -> AnyCommand:
    match command:
        case Complete():
            return _answering(command, holders)
        case Once():
            return msgspec.structs.replace(command, command=_with_wait(command.command, holders))
        case _:
            return command


def _answering(command: Complete, holders: Mapping[tuple[str, str], Name]) -> Complete:
    name = holders.get((command.workspace, command.signal_id))
    if name is None or is_held(name):
        return command
    return msgspec.structs.replace(command, run_id=name.run_id, no=int(name.message_id.rstrip("!")))


class Reads(msgspec.Struct):
    waits: set[RowKey] = msgspec.field(default_factory=set)
    inboxes: set[RunId] = msgspec.field(default_factory=set)  # all signals of these runs
    oldest: dict[Named, int] = msgspec.field(default_factory=dict)  # so many of a name at most
    packs: set[Named] = msgspec.field(default_factory=set)  # all of a name
    arriving: set[tuple[RunId, str | None]] = msgspec.field(default_factory=set)  # a pack may wait for it; None: any
    names: set[NameKey] = msgspec.field(default_factory=set)
    histories: set[RunId] = msgspec.field(default_factory=set)  # all steps of these runs
    interactions: set[ItemKey] = msgspec.field(default_factory=set)
    chores: set[str] = msgspec.field(default_factory=set)
    letters: set[LetterKey] = msgspec.field(default_factory=set)
    items: set[ItemKey] = msgspec.field(default_factory=set)
    streams: set[str] = msgspec.field(default_factory=set)  # how far the streams of these workspaces have come
    units: set[RowKey] = msgspec.field(default_factory=set)
    keys: set[str] = msgspec.field(default_factory=set)  # the hashes of keys that commands were sent with


def correlation_lookups(commands: Sequence[AnyCommand]) -> set[tuple[str, str]]:
    """The (workspace, correlation key) pairs whose holder must be looked up before anything can be locked."""
    return {(c.workspace, c.target) for c in parts(commands) if isinstance(c, Deliver) and c.by_correlation}


def with_target(command: AnyCommand, holders: Mapping[tuple[str, str], RunId]) -> AnyCommand:
    """The command addressed to the run that holds its correlation key, if one does."""
    match command:
        case Deliver():
            return _aimed(command, holders)
        case StartOrSignal():
            return msgspec.structs.replace(command, deliver=_aimed(command.deliver, holders))
        case DeliverMany():
            aimed = tuple(_aimed(delivery, holders) for delivery in command.deliveries)
            return msgspec.structs.replace(command, deliveries=aimed)
        case Admit(command=Deliver() as inner):
            return msgspec.structs.replace(command, command=_aimed(inner, holders))
        case Once():
            return msgspec.structs.replace(command, command=with_target(command.command, holders))
        case _:
            return command


def _aimed(command: Deliver, holders: Mapping[tuple[str, str], RunId]) -> Deliver:
    if not command.by_correlation:
        return command
    return msgspec.structs.replace(command, run_id=holders.get((command.workspace, command.target)))


def locks(commands: Sequence[AnyCommand]) -> set[RunId]:
    """The runs to lock, in ascending order of their ids, before anything is read."""
    ids: set[RunId] = set()
    for command in parts(commands):
        match command:  # the frequent ones first
            case CommitTurn():
                ids.add(command.run_id)
                if command.parent_id is not None and isinstance(command.move, End):
                    ids.add(command.parent_id)
            case Deliver() | Answer() | Complete() | NoteDenial():
                if command.run_id is not None:
                    ids.add(command.run_id)
            case Start() | KeepUnused() | StartOrSignal() | DeliverMany() | Admit() | Once():
                pass
            case Restore():
                ids.add(command.run.id)
            case CancelChildren():
                ids.add(command.run_id)
                ids.update(command.children)
            case Emit():
                ids.update(run_id for run_id, _ in command.hits)
            case _:
                ids.add(command.run_id)
    return ids


def new_ids(commands: Sequence[AnyCommand]) -> set[RunId]:
    """The ids of runs to be started. One that exists already says that the start was tried before."""
    return {command.run_id for command in parts(commands) if isinstance(command, Start)}


# What most batches are made of. A commit that ends its run names the parent itself.
NEVER_END_OTHERS: frozenset[type] = frozenset({CommitTurn, Start, Deliver, Complete, Answer})


def may_end(commands: Sequence[AnyCommand]) -> set[RunId]:
    """Runs that a command may end and whose parents are not known yet: look them up and lock them too.

    A parent never changes, so the look-up needs no lock.
    """
    ids: set[RunId] = set()
    if NEVER_END_OTHERS.issuperset(map(type, commands)):
        return ids
    for command in parts(commands):
        match command:
            case Cancel() | FireTimer() | Reject() | ExpireItems():
                ids.add(command.run_id)
            case CancelChildren():
                ids.update(command.children)
            case ChangeWait(change=Fail() | Withdraw()) | SettleDeadLetter(action="discard"):
                ids.add(command.run_id)
            case _:
                pass
    return ids


def reads(commands: Sequence[AnyCommand], runs: Mapping[RunId, Run]) -> Reads:
    """The rows beyond the locked runs that the decisions rest on."""
    wanted = Reads()
    starting: dict[RunId, str | None] = {}  # correlation keys of runs that this batch starts
    wanted.keys = keys(commands)
    wanted.names.update((c.workspace, "dedup", once_name(c.once)) for c in commands if isinstance(c, Once))
    for command in parts(commands):
        match command:
            case CommitTurn():
                _reads_of_commit(command, runs, wanted)
            case Start():
                starting[command.run_id] = command.correlation_key
                if command.correlation_key is not None:
                    wanted.names.add((command.workspace, "correlation", command.correlation_key))
            case Deliver():
                run = runs.get(command.run_id) if command.run_id is not None else None
                correlation = run.correlation_key if run is not None else starting.get(command.run_id or RunId(""))
                if command.dedup_key is not None:
                    for name in dedup_names(command, correlation):
                        wanted.names.add((command.workspace, "dedup", name))
                if run is not None and run.workspace == command.workspace:  # of another's nothing is read (H1)
                    wanted.waits.update((run.id, no) for no in run.open_waits)
                    _reads_of_arrival(run, command.name, wanted)
            case Complete():
                wanted.names.add((command.workspace, "signal", command.signal_id))
                if (key := dedup_name(command)) is not None:
                    wanted.names.add((command.workspace, "dedup", key))
                if command.run_id is not None:
                    wanted.waits.add((command.run_id, command.no))
            case Emit():
                wanted.waits.update(command.hits)
                if command.once is not None:
                    wanted.names.add((command.workspace, "dedup", once_name(command.once)))
            case AdmitCheckpoint():
                wanted.chores.add(command.chore.id)
                wanted.names.update((command.workspace, "dedup", admission_name(each)) for each in command.admissions)
            case Cancel():
                run = runs.get(command.run_id)
                if run is not None and run.workspace == command.workspace:
                    _reads_of_end(run, runs, wanted)
            case FireTimer():
                _reads_of_end(runs.get(command.run_id), runs, wanted)
                if command.no:
                    wanted.waits.add((command.run_id, command.no))
            case CancelChildren():
                for child in command.children:
                    _reads_of_end(runs.get(child), runs, wanted)
            case Answer() | ChangeWait() | HandTask() | SettleChore() | SettleDeadLetter() | LetGo():
                _reads_of_request(command, runs, wanted)
            case Reject() | TakeIn() | MarkDispatched() | ExpireItems():
                _reads_of_exchange(command, runs, wanted)
            case ClaimItems() | RenewItems() | FinishItems():
                _reads_of_items(command, runs, wanted)
            case _:
                pass
    return wanted


def keys(commands: Sequence[AnyCommand]) -> set[str]:
    """The hashes of the keys that commands were sent with."""
    return {command.key for command in commands if command.key}


def held_chores(names: Iterable[Name | None], wanted: Reads) -> set[str]:
    """The chores to read once the names are known: with those of *wanted*, the answers that are held (F7)."""
    return wanted.chores | chores_of(names)


def packs(waits: Iterable[Wait], wanted: Reads) -> set[Named]:
    """The signals to read once the waits are known: those that waits of *wanted* count together with what comes.

    A wait for a single signal counts nothing: it would not be open if one had been there. An inbox of any size costs
    nothing then.
    """
    if not wanted.arriving:
        return wanted.packs
    return wanted.packs | {
        (wait.run_id, name)
        for wait in waits
        if counts_a_pack(wait) and any((wait.run_id, name) in wanted.arriving for name in (None, *wait.names))
        for name in wait.names
    }


def _reads_of_arrival(run: Run, name: str | None, wanted: Reads) -> None:
    """One of the open waits may want a pack: what came before counts."""
    if run.inbox_count and run.style in REPLAYED and run.open_waits:
        wanted.arriving.add((run.id, name))


def _reads_of_request(
    command: Answer | ChangeWait | HandTask | SettleChore | SettleDeadLetter | LetGo,
    runs: Mapping[RunId, Run],
    wanted: Reads,
) -> None:
    match command:
        case SettleChore():
            wanted.chores.add(command.chore.id)
        case LetGo():
            wanted.chores.add(command.chore.id)
            if command.chore.kind == "hold":
                wanted.names.add((command.workspace, "signal", held_in(command.chore).signal_id))
        case SettleDeadLetter():
            wanted.letters.add((command.workspace, command.id))
            item, run = item_of_letter(command.id), runs.get(command.run_id)
            if item is not None and run is not None:
                wanted.items.add(item)
                _reads_of_stream(run, wanted)
            if command.items:
                _reads_of_unsent(command, runs, wanted)
        case Answer():
            run = runs.get(command.run_id)
            wanted.waits.add((command.run_id, command.no))
            if run is not None:
                wanted.waits.update([(run.id, no) for no in run.open_waits])  # one may take it as a signal
                _reads_of_arrival(run, None, wanted)
            wanted.interactions.add((command.run_id, command.no, command.item or 0))
            name = dedup_name(command)
            if name is not None:
                wanted.names.add((command.workspace, "dedup", name))
            _reads_of_stream(run, wanted, [command.item or 0])
            wanted.units.add((command.run_id, command.no))
        case HandTask():
            wanted.waits.add((command.run_id, command.no))
            wanted.interactions.add((command.run_id, command.no, command.item))
        case ChangeWait():
            run = runs.get(command.run_id)
            wanted.waits.add((command.run_id, command.no))
            if isinstance(command.change, (Fail, Withdraw)):
                _reads_of_end(run, runs, wanted)
            if command.item is not None:
                wanted.interactions.add((command.run_id, command.no, command.item))
                wanted.units.add((command.run_id, command.no))
                _reads_of_stream(run, wanted, [command.item])


def _reads_of_unsent(command: SettleDeadLetter, runs: Mapping[RunId, Run], wanted: Reads) -> None:
    """What declining them rests on, and whether somebody sends them after all."""
    run = runs.get(command.run_id)
    wanted.chores.add(command.id)
    wanted.waits.add((command.run_id, command.no))
    wanted.units.add((command.run_id, command.no))
    wanted.interactions.update((command.run_id, command.no, item) for item in command.items)
    _reads_of_end(run, runs, wanted)
    _reads_of_stream(run, wanted, command.items)


def _reads_of_stream(run: Run | None, wanted: Reads, items: Iterable[int] = ()) -> None:
    """What a change of a pipeline's items rests on beside the items: the waits of its stream, and their counts."""
    if run is None or run.style != "pipeline":
        return
    nos = {*run.open_waits, run.parked_on} - {None}
    wanted.waits.update((run.id, no) for no in nos if no is not None)
    wanted.units.update((run.id, no) for no in run.open_waits)
    section = progress_of(run).section
    wanted.items.update((run.id, section, item) for item in items)


def _reads_of_exchange(command: AnyExchangeCommand, runs: Mapping[RunId, Run], wanted: Reads) -> None:
    run = runs.get(command.run_id)
    match command:
        case Reject():
            items: Iterable[int] = (command.item,)
        case TakeIn():
            items = [given.item for given in command.given]
        case MarkDispatched():
            items = [result.item for result in command.results]
        case ExpireItems():
            items = command.items
    if isinstance(command, (MarkDispatched, ExpireItems)):
        wanted.chores.add(command.chore.id)
    if isinstance(command, (Reject, ExpireItems)):
        _reads_of_end(run, runs, wanted)
    wanted.waits.add((command.run_id, command.no))
    wanted.units.add((command.run_id, command.no))
    wanted.interactions.update((command.run_id, command.no, item) for item in items)
    _reads_of_stream(run, wanted, items)


def _reads_of_items(command: AnyItemCommand, runs: Mapping[RunId, Run], wanted: Reads) -> None:
    run, section = runs.get(command.run_id), command.section
    if run is None:
        return
    match command:
        case ClaimItems():
            items: Iterable[int] = command.items
        case RenewItems():
            items = (item for item, _ in command.claims)
        case FinishItems():
            items = (outcome.item for outcome in command.outcomes)
    wanted.items.update((run.id, section, item) for item in items)
    _reads_of_stream(run, wanted)


def turn_reads(runs: Iterable[Run]) -> Reads:
    """What a step is handed: the whole inbox, and the wait that woke it. Read after the changes are written.

    A workflow gets at its inbox by waits alone, and what they took is in its history.
    """
    wanted = Reads()
    for run in runs:
        if run.inbox_count and run.style not in REPLAYED:
            wanted.inboxes.add(run.id)
        if run.style in REPLAYED:
            wanted.histories.add(run.id)
            wanted.streams.add(run.workspace)
            if run.open_waits:
                wanted.waits.update((run.id, no) for no in run.open_waits)
            continue
        if run.woken_by is not None:
            wanted.waits.add((run.id, run.woken_by))
        if run.attempt and run.style == "machine":
            wanted.histories.add(run.id)  # how often it failed (`records.failures_of`)
    return wanted


def _reads_of_commit(command: CommitTurn, runs: Mapping[RunId, Run], wanted: Reads) -> None:
    run = runs.get(command.run_id)
    if run is None:
        return
    if isinstance(command.move, End):
        _reads_of_end(run, runs, wanted)
    elif isinstance(command.move, Park):
        if run.inbox_count:
            wanted.inboxes.add(run.id)
        for child in command.move.children:
            if child.correlation_key is not None:
                wanted.names.add((run.workspace, "correlation", child.correlation_key))
    if command.more:
        wanted.units.update((run.id, more.no) for more in command.more)
    if run.style == "pipeline":
        _reads_of_stream(run, wanted)
    elif run.style in REPLAYED:
        if run.open_waits or command.withdraws:
            wanted.waits.update((run.id, no) for no in (*run.open_waits, *command.withdraws))
        if run.inbox_count:
            _reads_of_receiving(run, command, wanted)
        for wait in command.opens:
            if wait.child is not None and wait.child.correlation_key is not None:
                wanted.names.add((run.workspace, "correlation", wait.child.correlation_key))
            wanted.names.update((run.workspace, "signal", name) for name in wait.names if wait.kind == "signal")


def _reads_of_receiving(run: Run, command: CommitTurn, wanted: Reads) -> None:
    """What the inbox may have for the waits that open: of single signals the oldest, for each of them one."""
    if command.unseen:  # what goes back may be for any wait
        wanted.inboxes.add(run.id)
    for wait in command.opens:
        if wait.kind != "receive":
            continue
        if not wait.names:
            wanted.inboxes.add(run.id)
        elif wait.expected:
            wanted.packs.update((run.id, name) for name in wait.names)
        else:
            for name in wait.names:
                wanted.oldest[run.id, name] = wanted.oldest.get((run.id, name), 0) + 1


def _reads_of_end(run: Run | None, runs: Mapping[RunId, Run], wanted: Reads) -> None:
    if run is None or run.status in FINAL:
        return
    if run.open_waits:
        wanted.waits.update((run.id, no) for no in run.open_waits)
    if run.inbox_count:
        wanted.inboxes.add(run.id)
    parent = runs.get(run.parent_id) if run.parent_id is not None else None
    if parent is not None:
        wanted.waits.update((parent.id, no) for no in parent.open_waits)
