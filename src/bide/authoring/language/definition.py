"""The definition that one machine of a file becomes: a workflow whose body walks the tree."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bide.authoring.language.checking import refuse
from bide.authoring.language.evaluating import Compiled, Values, compiled
from bide.authoring.language.fields import misfits, schema_of_fields, with_defaults
from bide.authoring.language.parser import parse
from bide.authoring.language.providers import Surroundings
from bide.authoring.language.tree import Expression, Machine, WaitFor, all_steps
from bide.authoring.language.visiting import links_in
from bide.authoring.language.waiting import Question
from bide.authoring.language.walking import Walk
from bide.authoring.machine import encode
from bide.authoring.workflow import Step, Workflow
from bide.core.payloads import decode_json
from bide.core.records import Style
from bide.core.redaction import check_names
from bide.core.retrying import RetryPolicy
from bide.errors import BadDefinition, BadInput, LanguageError

if TYPE_CHECKING:
    from bide.authoring.workflow.turn import WorkflowTurn

SUFFIX = ".machine"


class MachineFile(Workflow[Any, Any]):
    """A machine of a machine file. The file's `version:` is the definition's, so that parked runs keep theirs."""

    style: Style = "machine_file"
    is_straight = True

    def __init__(self, machine: Machine, surroundings: Surroundings, **options: Any) -> None:
        self.machine = machine
        self.surroundings = surroundings
        steps = all_steps(machine)
        self.callbacks = {step.name: step for step in steps if isinstance(step, WaitFor) and step.is_callback}
        self.schemas = {id(step): schema_of_fields(step.schema) for step in steps if isinstance(step, WaitFor)}
        self.asking = {id(step) for step in steps if isinstance(step, WaitFor) and step.asks_a_person}
        self.links = {id(step): found for step in steps if (found := links_in(step))}
        self.questions: dict[int, Question] = {}  # of waits that ask every run the same, as far as they were reached
        self._compiled: dict[int, Compiled] = {}
        super().__init__(
            self._walk,
            machine.name,
            version=machine.version,
            retry=RetryPolicy(attempts=machine.retries + 1),
            step_retry=RetryPolicy(),
            queue=machine.queue,
            priority=machine.priority,
            triggers=tuple(subscription.event for subscription in machine.subscribes),
            redact=check_names([field.name for field in machine.redact]),
            **options,
        )

    async def _walk(self, step: Step, input: Any) -> Any:
        return await Walk(self, step, input).run()

    def call(self, turn: WorkflowTurn, step: Step) -> Coroutine[Any, Any, Any]:
        return Walk(self, step, turn.input_as(Any)).run()

    def value_of(self, expression: Expression, values: Values) -> Any:
        """What an expression of this machine comes to; it is compiled when it is reached first."""
        found = self._compiled.get(id(expression))
        if found is None:
            found = self._compiled[id(expression)] = compiled(expression, self.machine.source)
        return found(values)

    def input_schema(self) -> dict[str, Any] | None:
        return schema_of_fields(self.machine.accepts)

    def encode_input(self, value: object, max_bytes: int) -> str:
        """Check an input against what the machine accepts, and fill in its defaults (L1)."""
        text = encode({} if value is None else value, max_bytes, f"the input of {self.name!r}")
        if self.machine.accepts is None:
            return text if value is not None else "null"
        given = with_defaults(self.machine.accepts, decode_json(text, max_bytes=max_bytes), self.machine.source)
        if wrong := misfits(self.machine.accepts, given):
            raise BadInput(f"the input of {self.name!r} is not what it accepts: {'; '.join(wrong)}")
        return encode(given, max_bytes, f"the input of {self.name!r}")


def load(place: str | Path, surroundings: Surroundings) -> Iterator[MachineFile]:
    """The machines of a file, or of every `.machine` file in a folder and the folders in it.

    Raises `LanguageError` with the problems of all files, and `BadDefinition` where there is nothing to load.
    """
    problems: list[object] = []
    made: list[MachineFile] = []
    for path in files(place):
        try:
            file = parse(read_file(path), str(path))
            refuse(file)
        except LanguageError as error:
            problems += error.problems
        else:
            made += (MachineFile(machine, surroundings) for machine in file.machines)
    if problems:
        raise LanguageError(tuple(problems))
    yield from made


def files(place: str | Path) -> list[Path]:
    path = Path(place)
    if path.is_dir():
        found = sorted(path.rglob(f"*{SUFFIX}"))
        if not found:
            raise BadDefinition(f"there is no {SUFFIX} file in {str(path)!r}")
        return found
    if not path.is_file():
        raise BadDefinition(f"there is no machine file {str(path)!r}")
    return [path]


def read_file(path: Path) -> str:
    """The text as it is, line ends too. Raises `BadDefinition`."""
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadDefinition(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise BadDefinition(f"{path} cannot be read: {error.strerror}") from error
