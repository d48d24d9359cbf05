"""What is wrong with a machine that can be read: unknown names, fields read too early, types that clash (L6).

Nothing is run. What cannot be told from the file alone is left to the run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from bide.authoring.language.parser import read
from bide.authoring.language.source import Problem, Severity, Source, Span, in_order, problem_at, suggestion
from bide.authoring.language.terms import COUNTING, Terms, shown
from bide.authoring.language.tree import (
    AskModel,
    Call,
    Compute,
    Decide,
    Emit,
    Entry,
    Expression,
    Field,
    File,
    FlowName,
    ForEach,
    Http,
    Literal_,
    Machine,
    MapOf,
    RunFlow,
    Sequence,
    Step,
    Text,
    Variable,
    WaitFor,
    all_steps,
    steps_of,
)
from bide.authoring.language.typing import ANY, LINKS, Shape, Typing, fits, shape_of_fields
from bide.authoring.language.visiting import names_in
from bide.authoring.language.words import CALL_KEYS, TABLE
from bide.core.durations import BadDuration, parse_duration
from bide.core.topics import BadName, check_name, check_pattern
from bide.errors import LanguageError

KEYWORD: Final = re.compile("«([^«»]*)»")
ADDRESSES: Final = ("http://", "https://")
MOST_LINES: Final = 5
RETRYING: Final = ("attempts", "first", "factor", "most")
OF_PEOPLE: Final = {
    "assignee": "says who may answer",
    "group": "says who may answer",
    "quorum": "says how many people must answer",
}
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")


def check_text(text: str, name: str = "machine file", known: Iterable[str] | None = None) -> list[Problem]:
    """Every problem of a machine file, syntax first; *known* are the machines and actions that it may call."""
    file, problems = read(text, name)
    if file is not None and not problems:
        problems = check_file(file, known)
    return list(in_order(problems))


def check_file(file: File, known: Iterable[str] | None = None) -> list[Problem]:
    beside = {machine.name: machine for machine in file.machines}
    names = {*known, *beside} if known is not None else None
    return [problem for machine in file.machines for problem in check_machine(machine, names, beside)]


def check_machine(
    machine: Machine, known: set[str] | None = None, beside: Mapping[str, Machine] | None = None
) -> list[Problem]:
    """*beside* are machines by their names that it may call: what they accept and respond with is looked at."""
    return _Checker(machine, known, beside or {}).check()


def refuse(file: File) -> None:
    """Raises `LanguageError` where a machine of the file could not run; what is only doubtful passes."""
    errors = tuple(problem for problem in in_order(check_file(file)) if problem.severity == "error")
    if errors:
        raise LanguageError(errors)


@dataclass
class Scope:
    """What can be read at one place of a machine."""

    ran: dict[str, Shape] = field(default_factory=dict)  # steps that ran before, on this path
    variables: dict[str, Shape] = field(default_factory=dict)
    has_error: bool = False
    never: frozenset[str] = frozenset()  # steps that cannot have run when this flow begins: a wait's time was up

    def inner(self) -> Scope:
        return Scope(dict(self.ran), dict(self.variables), self.has_error, self.never)


class _Checker:
    def __init__(self, machine: Machine, known: set[str] | None, beside: Mapping[str, Machine]) -> None:
        self._machine = machine
        self._beside = beside  # the machines of the file, by name
        self._source: Source = machine.source
        self._known = known
        self._problems: list[Problem] = []
        self._unknown: dict[tuple[str, ...], dict[Span, str]] = {}
        self._shapes: dict[str, Shape] = {}
        self._waits = {step.name: step for step in all_steps(machine) if isinstance(step, WaitFor)}
        self._mentioned: set[str] = set()
        self._in_flow = False
        self._in_loop: frozenset[str] = frozenset()  # steps of the loops around: they may have run for an earlier item
        self._before_timeout: dict[str, frozenset[str]] = {}  # of each flow of timeouts, what may have run before it

    def check(self) -> list[Problem]:
        for fields in (self._machine.accepts, self._machine.responds):
            self._fields(fields or ())
        self._all_shapes()
        self._hidden()
        self._sequence(self._machine.main, Scope())
        if not self._machine.main.steps and not self._problems:
            self._say(self._machine.span, f"machine `{self._machine.name}` has no step")
        self._in_flow = True
        for flow in self._machine.flows.values():
            self._sequence(flow.body, Scope(never=self._never_before(flow.name)))
        self._endless()
        for flow in self._machine.flows.values():
            if flow.name not in self._mentioned:
                self._say(flow.span, f"flow `{flow.name}` is never run", "warning")
        for places in self._unknown.values():
            self._say_at_first(places)
        return self._problems

    def _say_unknown(self, name: tuple[str, ...], span: Span, message: str) -> None:
        """A name that is not there is one mistake, however often it is used."""
        self._unknown.setdefault(name, {})[span] = message

    def _say_at_first(self, places: dict[Span, str]) -> None:
        first, *others = sorted(places)
        lines = sorted({self._source.place(span.start)[0] for span in others} - {self._source.place(first.start)[0]})
        shown = ", ".join(str(line) for line in lines[:MOST_LINES]) + (", …" if len(lines) > MOST_LINES else "")
        also = f" (also in line{'s' if len(lines) > 1 else ''} {shown})" if lines else ""
        self._say(first, places[first] + also)

    def _say(self, span: Span, message: str, severity: Severity = "error") -> None:
        """Note a problem. A keyword in «…» is said in the language of the file."""
        said = KEYWORD.sub(lambda found: TABLE.get(found[1], {}).get(self._machine.language, found[1]), message)
        self._problems.append(problem_at(self._source, span, said, severity))

    def _hidden(self) -> None:
        """A field to hide may stand deep in data that no file describes; one that is nearly another is a slip."""
        named = names_in(self._machine)
        for hidden in self._machine.redact:
            if hidden.name not in named and (hint := suggestion(hidden.name, named)):
                self._say(hidden.span, f"nothing in this machine is called `{hidden.name}`{hint}", "warning")

    # ------------------------------------------------------------ flows

    def _never_before(self, flow: str) -> frozenset[str]:
        """The steps that cannot have run when a flow of timeouts begins: the waits that lead to it, and what comes
        after them. None are known of a flow that is also run, or that a wait in another flow leads to."""
        before = self._before_timeout.get(flow)
        steps = [step for each in self._machine.flows.values() for step in steps_of(each.body)]
        is_run = any(isinstance(step, RunFlow) and step.flow.name == flow for step in all_steps(self._machine))
        is_led_to = any(isinstance(step, WaitFor) and _leads_to(step, flow) for step in steps)
        if before is None or is_run or is_led_to:
            return frozenset()
        return frozenset(self._shapes) - before

    def _endless(self) -> None:
        """A flow that runs itself whatever happens: nothing chooses, and no wait leads elsewhere."""
        runs = {flow.name: _always_runs(flow.body) for flow in self._machine.flows.values()}
        for flow in self._machine.flows.values():
            for mention in runs[flow.name]:
                reached, ahead = set[str](), [mention.name]
                while ahead:
                    name = ahead.pop()
                    if name not in reached:
                        reached.add(name)
                        ahead += [each.name for each in runs.get(name, ())]
                if flow.name in reached:
                    self._say(mention.span, f"flow `{flow.name}` runs itself for ever: nothing in it chooses to stop")
                    return  # one of a ring is enough

    # ------------------------------------------------------------ shapes

    def _all_shapes(self) -> None:
        """What each step gives, as far as the file says; a name that is used twice gives either."""
        for step in all_steps(self._machine):
            names = [step.name] if not isinstance(step, (ForEach, RunFlow)) else []
            if isinstance(step, ForEach) and step.collect is not None:
                names = [step.collect]
            for name in names:
                shape = self._shape_of(step)
                before = self._shapes.get(name)
                self._shapes[name] = shape if before is None else before.either(shape)

    def _shape_of(self, step: Step) -> Shape:
        match step:
            case Compute(value=MapOf() as made):
                return Shape("map", {entry.name: ANY for entry in made.entries})
            case Http():
                return Shape("map", {"status": Shape("number"), "headers": Shape("map"), "body": ANY})
            case AskModel() if step.returns:
                return shape_of_fields(step.returns)
            case Call(kind="launch"):
                return Shape("text")
            case Call() if step.returns:
                return shape_of_fields(step.returns)
            case Call() if (called := self._called(step)) is not None and called.responds:
                return shape_of_fields(called.responds)
            case WaitFor() if step.entry("quorum") is not None:
                return Shape("map", {"value": ANY, "outcome": Shape("text"), "answers": Shape("list")})
            case WaitFor() if step.schema is not None:
                return shape_of_fields(step.schema)
            case ForEach():
                return Shape("list")
            case _:
                return ANY

    # ------------------------------------------------------------ steps

    def _sequence(self, sequence: Sequence | None, scope: Scope) -> None:
        if sequence is None:
            return
        for step in sequence.steps:
            self._step(step, scope)
            name = step.collect if isinstance(step, ForEach) else step.name
            if name is not None and not isinstance(step, RunFlow):
                scope.ran[name] = self._shapes.get(name, ANY)
        self._handler(sequence.on_failure, scope)

    def _step(self, step: Step, scope: Scope) -> None:
        match step:
            case Compute():
                self._compute(step, scope)
            case Http():
                self._http(step, scope)
            case Call():
                self._call(step, scope)
            case AskModel():
                self._ask(step, scope)
            case Decide():
                self._decide(step, scope)
            case Emit():
                self._emit(step, scope)
            case WaitFor():
                self._wait(step, scope)
            case RunFlow():
                self._flow(step.flow)
                scope.ran.update(self._given_by(step.flow.name, set()))
            case ForEach():
                self._for_each(step, scope)

    def _type(self, expression: Expression | None, scope: Scope, *, secrets: bool = False) -> Shape:
        if expression is None:
            return ANY
        typing = Typing(
            self._machine, self._shapes, self._waits, scope.ran, scope.variables, self._say, self._say_unknown,
            has_error=scope.has_error, allows_secrets=secrets, in_flow=self._in_flow, never=scope.never,
        )  # fmt: skip
        return typing.of(expression)

    def _compute(self, step: Compute, scope: Scope) -> None:
        self._type(step.value, scope)
        if step.name == "result" and isinstance(step.value, MapOf) and self._machine.responds is not None:
            given = {entry.name: entry for entry in step.value.entries}
            for responds in self._machine.responds:
                entry = given.get(responds.name)
                if entry is None and responds.is_required:
                    self._say(step.span, f"the result lacks `{responds.name}`, which the machine responds with")
                elif entry is not None:
                    self._fit(responds, entry.value, self._quiet(entry.value, scope))
            known = [responds.name for responds in self._machine.responds]
            for name, entry in given.items():
                if name not in known and (hint := suggestion(name, known)):
                    self._say(entry.span, f"the machine does not respond with `{name}`{hint}", "warning")

    def _quiet(self, expression: Expression, scope: Scope) -> Shape:
        problems, self._problems = self._problems, []
        shape = self._type(expression, scope)
        self._problems = problems
        return shape

    def _fit(self, wanted: Field, value: Expression, shape: Shape) -> None:
        if shape.type == "null" and not wanted.is_required:
            return
        if not fits(wanted.type, shape, value):
            hint = '; write it like "2030-01-31"' if wanted.type == "date" else ""
            self._say(value.span, f"`{wanted.name}` is «{wanted.type}», but this is «{shape.type}»{hint}")

    def _http(self, step: Http, scope: Scope) -> None:
        for entry in step.told:
            shape = self._type(entry.value, scope, secrets=entry.name in ("url", "headers", "body"))
            if entry.name == "method":
                self._method(entry)
            elif entry.name == "url":
                self._want(entry, shape, "text")
                self._address(entry)
            elif entry.name == "headers":
                self._want(entry, shape, "map")
        self._limits(step.told, scope)
        self._assumed(step.name, step.assuming, None, scope)
        self._handler(step.on_failure, scope)

    def _method(self, entry: Entry) -> None:
        if isinstance(entry.value, Literal_) and entry.value.value not in METHODS:
            hint = suggestion(str(entry.value.value).upper(), METHODS)
            self._say(entry.value.span, f"{shown(entry.value.value)} is no HTTP method{hint}")

    def _address(self, entry: Entry) -> None:
        match entry.value:
            case Literal_(value=str(start)) | Text(parts=(str(start), *_)) if not start.startswith(ADDRESSES):
                self._say(entry.value.span, "an address begins with http:// or https://")
            case _:
                pass

    def _want(self, entry: Entry, shape: Shape, *types: str) -> None:
        if shape.type not in ("any", *types):
            self._say(
                entry.value.span,
                f"`«{entry.name}»` takes {' or '.join(f'«{one}»' for one in types)}, but this is «{shape.type}»",
            )

    def _limits(self, told: tuple[Entry, ...], scope: Scope) -> None:
        for entry in told:
            if entry.name == "timeout":
                self._duration(entry, self._quiet(entry.value, scope))
            elif entry.name == "retry":
                self._retry(entry, self._quiet(entry.value, scope))

    def _retry(self, entry: Entry, shape: Shape) -> None:
        said = "`«retry»` is how often to try again, from 0 to 100, or an object with " + ", ".join(RETRYING)
        match entry.value:
            case Literal_(value=int(times)) if not isinstance(times, bool) and 0 <= times <= 100:
                return
            case MapOf(entries=entries):
                for each in entries:
                    if each.name not in RETRYING:
                        self._say(each.span, f"{said}; `{each.name}` is none of them{suggestion(each.name, RETRYING)}")
                    elif each.name in ("attempts", "factor") and _is_no_number(each.value):
                        self._say(each.value.span, f"`{each.name}` is a number from 1 on")
            case value if isinstance(value, Literal_) or shape.type not in ("any", "number", "map"):
                self._say(value.span, said)

    def _duration(self, entry: Entry, shape: Shape) -> None:
        value = entry.value
        how = 'write "90s", "30m", "24h", "7d" or "1h30m", or `«forever»`'
        if isinstance(value, Literal_):
            if value.value == "forever":
                return
            try:
                parse_duration(value.value)  # type: ignore[arg-type]  # whatever it is, it is looked at
            except BadDuration:
                self._say(value.span, f"{shown(value.value)} is no length of time; {how}")
        elif shape.type not in ("any", "text", "number"):
            self._say(value.span, f"`«{entry.name}»` takes a length of time, but this is «{shape.type}»; {how}")

    def _event(self, value: Expression, check: Callable[[object], str]) -> None:
        if isinstance(value, Literal_) and isinstance(value.value, str):
            try:
                check(value.value)
            except BadName as error:
                self._say(value.span, str(error))

    def _single(self, entries: Iterable[Entry], scope: Scope) -> None:
        """What events are matched with."""
        for entry in entries:
            shape = self._quiet(entry.value, scope)
            if shape.type in ("list", "map"):
                self._say(entry.value.span, f"`«match»` compares single values, but `{entry.name}` is «{shape.type}»")

    def _call(self, step: Call, scope: Scope) -> None:
        named = self._type(step.machine, scope)
        if named.type not in ("any", "text"):
            self._say(step.machine.span, f"a machine is named by «text», but this is «{named.type}»")
        if self._known is not None and isinstance(step.machine, Literal_) and step.machine.value not in self._known:
            hint = suggestion(str(step.machine.value), self._known)
            self._say(step.machine.span, f"no machine and no action is called {shown(step.machine.value)}{hint}")
        self._arguments(step, scope)
        options = [TABLE[each][self._machine.language] for each in CALL_KEYS] if step.kind == "call" else []
        for entry in step.arguments:
            self._type(entry.value, scope, secrets=step.kind == "call")
            if near := get_close_matches(entry.name, options, n=1, cutoff=0.75):
                said = f"`{entry.name}` is given to what is called, as an argument; did you mean `{near[0]}`?"
                self._say(entry.span, said, "warning")
        self._limits(step.told, scope)
        for entry in step.told:
            self._type(entry.value, scope)
        self._fields(step.returns or ())
        self._assumed(step.name, step.assuming, step.returns, scope)
        self._handler(step.on_failure, scope)

    def _called(self, step: Call) -> Machine | None:
        """The machine of this file that a step calls, where its name stands there."""
        return self._beside.get(str(step.machine.value)) if isinstance(step.machine, Literal_) else None

    def _arguments(self, step: Call, scope: Scope) -> None:
        """What a machine of the same file is given must be what it accepts."""
        called = self._called(step)
        if called is None or called.accepts is None:
            return
        accepts = {each.name: each for each in called.accepts}
        given = {entry.name: entry for entry in step.arguments}
        meant: set[str] = set()
        for name, entry in given.items():
            if name in accepts:
                self._fit(accepts[name], entry.value, self._quiet(entry.value, scope))
            else:
                hint = suggestion(name, accepts)
                meant |= {each for each in accepts if f"`{each}`" in hint}
                self._say(
                    entry.span, f"machine `{called.name}` accepts no `{name}`{hint}", "error" if hint else "warning"
                )
        for name, each in accepts.items():
            if each.is_required and each.default is None and name not in given and name not in meant:
                self._say(step.span, f"machine `{called.name}` requires `{name}`, and is not given it")

    def _ask(self, step: AskModel, scope: Scope) -> None:
        using = step.using
        self._want(Entry("using", using, step.span), self._type(using, scope), "text")
        if isinstance(using, Literal_) and isinstance(using.value, str) and ":" not in using.value.strip(":"):
            self._say(using.span, 'a model is named "provider:model"')
        self._type(step.task, scope, secrets=True)
        for entry in step.told:
            self._type(entry.value, scope)
        self._limits(step.told, scope)
        self._fields(step.returns)
        self._assumed(step.name, step.assuming, step.returns or None, scope)
        self._handler(step.on_failure, scope)

    def _assumed(
        self, step: str, assumed: tuple[Entry, ...] | None, fields: tuple[Field, ...] | None, scope: Scope
    ) -> None:
        meant: set[str] = set()
        wanted = {each.name: each for each in fields or ()}
        for entry in assumed or ():
            shape = self._type(entry.value, scope)
            if fields is None:
                continue
            if entry.name not in wanted:
                hint = suggestion(entry.name, wanted)
                meant |= {name for name in wanted if f"`{name}`" in hint}
                said = f"`{entry.name}` is not among what is returned{hint}"
                self._say_unknown(("steps", step, entry.name), entry.span, said)
            else:
                self._fit(wanted[entry.name], entry.value, shape)
        if assumed is not None and fields is not None:
            given = meant | {entry.name for entry in assumed}
            for name, each in wanted.items():
                if each.is_required and name not in given:
                    self._say(each.span, f"`{name}` is required, but the assumed answer lacks it")

    def _handler(self, handler: Sequence | None, scope: Scope) -> None:
        if handler is not None:
            inner = scope.inner()
            inner.has_error = True
            self._sequence(handler, inner)
            scope.ran.update(inner.ran)

    def _decide(self, step: Decide, scope: Scope) -> None:
        after = dict(scope.ran)
        for branch in step.branches:
            if branch.condition is not None:
                shape = self._type(branch.condition, scope)
                if shape.type not in ("any", "boolean", "null"):
                    self._say(branch.condition.span, f"a condition is true or false, but this is «{shape.type}»")
            inner = scope.inner()
            self._sequence(branch.body, inner)
            after.update(inner.ran)
        scope.ran = after

    def _emit(self, step: Emit, scope: Scope) -> None:
        self._want(Entry("event", step.event, step.span), self._type(step.event, scope), "text")
        self._event(step.event, check_name)
        self._type(step.data, scope)
        if step.channel is not None:
            self._want(Entry("channel", step.channel, step.span), self._type(step.channel, scope), "text")

    def _wait(self, step: WaitFor, scope: Scope) -> None:
        terms = Terms(self._say, lambda value: self._quiet(value, scope), self._fit)
        for entry in step.told:
            shape = self._type(entry.value, scope) if entry.name != "decides" else ANY
            if entry.name == "timeout":
                self._duration(entry, shape)
            elif entry.name == "callback":
                is_constant = isinstance(entry.value, Literal_) and isinstance(entry.value.value, bool)
                if not is_constant and not isinstance(entry.value, Variable):
                    self._say(entry.value.span, "`«callback»` is `«true»` or `«false»`")
            elif entry.name == "match":
                self._want(entry, shape, "map")
                self._single(entry.value.entries if isinstance(entry.value, MapOf) else (), scope)
            elif entry.name in ("reminders", "escalate"):
                terms.agenda(entry, shape, step.entry("timeout"))
            elif entry.name == "metadata":
                self._want(entry, shape, "map")
                terms.metadata(entry)
            elif entry.name not in COUNTING:
                self._want(entry, shape, "text")
            if entry.name == "event":
                self._event(entry.value, check_pattern)
        terms.counting(step)
        if step.is_callback and step.entry("event") is not None:
            self._say(step.span, f"`{step.name}` waits for an event and for a callback; make two waits of it")
        for entry in step.told:
            if entry.name in OF_PEOPLE and not step.asks_a_person:
                what = "a callback" if step.is_callback else "an event"
                said = f"but `{step.name}` waits for {what}, which anybody may bring"
                self._say(entry.span, f"`«{entry.name}»` {OF_PEOPLE[entry.name]}, {said}")
        if step.entry("match") is not None and step.entry("event") is None:
            self._say(step.span, f"`{step.name}` matches data, but waits for no event")
        if step.entry("timeout") is None:
            why = "it may wait for ever; give a time, or `«forever»` to say so"
            self._say(step.span, f"`{step.name}` has no timeout: {why}", "warning")
        if step.on_timeout is not None:
            self._flow(step.on_timeout)
            if not self._in_flow:
                self._before_timeout[step.on_timeout.name] = (
                    self._before_timeout.get(step.on_timeout.name, frozenset()) | scope.ran.keys() | self._in_loop
                )
            limit = step.entry("timeout")
            if limit is None or (isinstance(limit, Literal_) and limit.value == "forever"):
                self._say(step.on_timeout.span, "this flow never runs, because the wait has no timeout", "warning")
        self._fields(step.schema or ())
        for each in step.schema or ():
            if each.name in LINKS:
                self._say(each.span, f"`{each.name}` is a name of bide's own")

    def _flow(self, mention: FlowName) -> None:
        self._mentioned.add(mention.name)
        if mention.name not in self._machine.flows:
            hint = suggestion(mention.name, self._machine.flows)
            self._say_unknown(("flows", mention.name), mention.span, f"there is no flow `{mention.name}`{hint}")

    def _given_by(self, flow: str, seen: set[str]) -> dict[str, Shape]:
        """What can be read after a flow ran, with what the flows that it runs give."""
        given: dict[str, Shape] = {}
        if flow in seen or flow not in self._machine.flows:
            return given
        seen.add(flow)
        for step in steps_of(self._machine.flows[flow].body):
            if isinstance(step, RunFlow):
                given |= self._given_by(step.flow.name, seen)
                continue
            name = step.collect if isinstance(step, ForEach) else step.name
            if name is not None:
                given[name] = self._shapes.get(name, ANY)
        return given

    def _for_each(self, step: ForEach, scope: Scope) -> None:
        shape = self._type(step.items, scope)
        if shape.type not in ("any", "list"):
            self._say(step.items.span, f"items come from a list, but this is «{shape.type}»")
        inner = scope.inner()
        inner.variables[step.name] = ANY
        before = self._in_loop
        self._in_loop = before | {each.name for each in steps_of(step.body)}
        self._sequence(step.body, inner)
        self._in_loop = before
        scope.ran.update(inner.ran)

    def _fields(self, fields: Iterable[Field]) -> None:
        for each in fields:
            if each.default is None:
                continue
            shape = self._type(each.default, Scope())
            self._fit(each, each.default, shape)
            if each.is_required:
                self._say(
                    each.default.span,
                    f"`{each.name}` is required and has a default; one of the two is enough",
                    "warning",
                )


def _leads_to(step: WaitFor, flow: str) -> bool:
    return step.on_timeout is not None and step.on_timeout.name == flow


def _always_runs(body: Sequence) -> list[FlowName]:
    """The flows that a flow runs whatever happens; none where a wait of it may lead elsewhere, or a failure may."""
    if body.on_failure is not None or any(isinstance(step, WaitFor) and step.on_timeout for step in body.steps):
        return []
    return [step.flow for step in body.steps if isinstance(step, RunFlow)]


def _is_no_number(value: Expression) -> bool:
    """Whether a value that stands in the file is none that can be counted with."""
    if not isinstance(value, Literal_):
        return False
    return isinstance(value.value, bool) or not isinstance(value.value, (int, float)) or value.value < 1
