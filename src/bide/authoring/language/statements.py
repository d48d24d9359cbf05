"""What steps look like: each method reads one of them where the reader stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from bide.authoring.language.expressions import parse_expression
from bide.authoring.language.reading import Reader, Stop
from bide.authoring.language.source import Span, suggestion
from bide.authoring.language.tree import (
    AskModel,
    Branch,
    Call,
    Compute,
    Decide,
    Emit,
    Entry,
    Expression,
    Field,
    Flow,
    FlowName,
    ForEach,
    Http,
    Literal_,
    MapOf,
    RunFlow,
    Sequence,
    Step,
    WaitFor,
)
from bide.authoring.language.words import (
    BRANCHES,
    CALL_KEYS,
    EMIT_KEYS,
    HTTP_KEYS,
    LAUNCH_KEYS,
    MODEL_KEYS,
    MODIFIERS,
    STEPS,
    TYPES,
    WAIT_KEYS,
)

DEEPEST = 25
END = "an operator or the end of the line"


class Told:
    """What the block under a step says: entries of bide's own, of the user's, and parts."""

    def __init__(self) -> None:
        self.own: dict[str, Entry] = {}
        self.arguments: list[Entry] = []
        self.parts: dict[str, Any] = {}
        self.on_timeout: FlowName | None = None
        self.is_broken = False  # a line of it could not be read, so that what is missing may have been there

    def entries(self, *without: str) -> tuple[Entry, ...]:
        return tuple(entry for name, entry in self.own.items() if name not in without)

    def value(self, name: str) -> Expression | None:
        entry = self.own.get(name)
        return entry.value if entry is not None else None


class Statements:
    def __init__(self, reader: Reader, flow_section: Callable[[], None]) -> None:
        self._reader = reader
        self._flow_section = flow_section
        self._depth = 0
        self.flows: dict[str, Flow] = {}

    def expression(self) -> Expression:
        return parse_expression(self._reader)

    # ------------------------------------------------------------ sequences

    def sequence(self, where: str, *, allows_flows: bool = False) -> Sequence:
        """The steps of the block that begins here."""
        reader = self._reader
        if not reader.at("indent"):
            raise reader.stop_empty(f"nothing stands {where}; put at least one step there, indented")
        if self._depth >= DEEPEST:
            raise reader.stop(reader.peek(1).span, f"blocks are nested more than {DEEPEST} deep")
        steps: list[Step] = []
        handlers: list[Sequence] = []

        def line() -> None:
            span = reader.peek().span
            keyword = reader.keyword(*STEPS)
            if keyword == "on failure":
                if handlers:
                    said = f"`{reader.form('on failure')}` stands here already; it can be said once"
                    reader.note(span, said)
                handlers.append(self._handler())
                return
            if keyword == "flows":
                if not allows_flows:
                    raise reader.stop(span, f"`{reader.form('flows')}` stands under the machine, not inside of a block")
                self._flow_section()
                return
            if keyword is None:
                known = [reader.form(each) for each in STEPS]
                raise reader.stop_line(f"a step ({', '.join(f'`{each}`' for each in known[:-2])})", known)
            if handlers:
                reader.note(
                    span, f"`{reader.form('on failure')}` is the last part of its block; move this step above it"
                )
            steps.append(self._step(keyword))

        self._depth += 1
        reader.lines(line)
        self._depth -= 1
        return Sequence(tuple(steps), handlers[0] if handlers else None)

    def _handler(self) -> Sequence:
        self._reader.end_line()
        return self.sequence(f"under `{self._reader.form('on failure')}`")

    def _step(self, keyword: str) -> Step:
        match keyword:
            case "compute":
                return self._compute()
            case "action":
                return self._action()
            case "ask":
                return self._ask()
            case "decide":
                return self._decide()
            case "emit":
                return self._emit()
            case "launch":
                return self._launch()
            case "wait for":
                return self._wait_for()
            case "run":
                return self._run_flow()
            case _:
                return self._for_each()

    def _named(self, keyword: str) -> tuple[str, Span]:
        span = self._reader.peek().span
        self._no_hyphens()
        return self._reader.name(f"a name for this `{self._reader.form(keyword)}`"), span

    def _no_hyphens(self) -> None:
        if self._reader.at("name") and (found := self._reader.hyphenated()):
            span, written = found
            said = f"a name has letters, digits and underscores: `{written.replace('-', '_')}`"
            raise self._reader.stop(span, said)

    # ------------------------------------------------------------ steps

    def _compute(self) -> Step:
        reader = self._reader
        name, span = self._named("compute")
        if reader.at_operator(":") and reader.peek(1).kind != "newline":
            raise reader.stop(
                reader.peek().span, f"the expression of `{name}` stands under it, indented, without a `:`"
            )
        reader.end_line()
        if not reader.at("indent"):
            raise reader.stop_empty(f"`{name}` computes nothing; its expression stands under it, indented")
        found: list[Expression] = []

        def line() -> None:
            start = reader.peek().span
            value = self.expression()
            reader.end_line(END)
            if found:
                raise reader.stop(start, f"`{name}` has an expression already; a second one is a step of its own")
            found.append(value)

        reader.lines(line)
        return Compute(name, span, found[0] if found else Literal_(None, span))

    def _action(self) -> Step:
        reader = self._reader
        name, span = self._named("action")
        kind = reader.keyword("http", "call")
        if kind is None:
            known = [reader.form("http"), reader.form("call")]
            if name in known and not reader.source.text.startswith("`", span.start):
                raise reader.stop(span, f"a name for this `{reader.form('action')}` was expected before `{name}`")
            raise reader.stop_expected(f"`{known[0]}` or `{known[1]}`", known)
        reader.end_line()
        if kind == "http":
            told = self._told(HTTP_KEYS, ("assuming", "on failure"), needed="url")
            self._need(told, "url", span, name)
            return Http(name, span, told.entries(), told.parts.get("assuming"), told.parts.get("on failure"))
        return self._calling("call", name, span, self._told(CALL_KEYS, CALLING, takes_arguments=True))

    def _launch(self) -> Step:
        name, span = self._named("launch")
        self._reader.end_line()
        return self._calling("launch", name, span, self._told(LAUNCH_KEYS, (), takes_arguments=True))

    def _calling(self, kind: Any, name: str, span: Span, told: Told) -> Step:
        self._need(told, "machine", span, name)
        return Call(
            kind,
            name,
            span,
            told.own["machine"].value,
            tuple(told.arguments),
            told.entries("machine"),
            told.parts.get("returns"),
            told.parts.get("assuming"),
            told.parts.get("on failure"),
        )

    def _ask(self) -> Step:
        reader = self._reader
        name, span = self._named("ask")
        head: dict[str, Entry] = {}
        while (is_listed := reader.operator(",") is not None) or reader.find("from"):
            at = reader.peek().span
            keyword = reader.keyword("using", "from")
            if keyword is None:
                known = [reader.form("using"), reader.form("from")]
                raise reader.stop_expected(f"`{known[0]}:` or `{known[1]}`", known)
            if is_listed:
                reader.operator(":") if keyword == "from" else reader.expect(":", f"`:` after `{reader.form(keyword)}`")
            if keyword in head:
                raise reader.stop(at, f"`{reader.form(keyword)}` is said twice")
            head[keyword] = Entry(keyword, self._machine_named() if keyword == "from" else self.expression(), at)
        reader.end_line("the end of the line", [reader.form("using"), reader.form("from")])
        if "from" in head:
            told = self._told(CALL_KEYS[1:], CALLING, takes_arguments=True, may_be_empty=True)
            told.own["machine"] = head["from"]
            return self._calling("call", name, span, told)
        told = self._told(MODEL_KEYS, ("with task", "returns", "assuming", "on failure"), needed="with task")
        told.own |= head
        self._need(told, "using", span, name)
        if "with task" not in told.parts:
            if told.is_broken:
                raise Stop
            raise reader.stop(span, f'`{name}` asks nothing; add `{reader.form("with task")} "…"` to it')
        return AskModel(
            name,
            span,
            told.own["using"].value,
            told.parts["with task"],
            told.parts.get("returns", ()),
            told.parts.get("assuming"),
            told.entries("using"),
            told.parts.get("on failure"),
        )

    def _machine_named(self) -> Expression:
        token = self._reader.peek()
        if token.kind == "name":
            return Literal_(self._reader.name("the name of a machine"), token.span)
        return self.expression()

    def _decide(self) -> Step:
        reader = self._reader
        name, span = self._named("decide")
        reader.end_line()
        branches: list[Branch] = []
        if not reader.at("indent"):
            raise reader.stop_empty(f"`{name}` has no branch; put `{reader.form('when')} …` under it, indented")

        def line() -> None:
            at = reader.peek().span
            keyword = reader.keyword(*BRANCHES)
            if keyword is None:
                known = [reader.form(each) for each in BRANCHES]
                raise reader.stop_line(f"`{known[0]}` or `{known[1]}`", known)
            if branches and branches[-1].condition is None:
                reader.note(at, f"nothing comes after `{reader.form('otherwise')}`")
            condition = self.expression() if keyword == "when" else None
            reader.end_line(END)
            branches.append(Branch(condition, self.sequence(f"under `{reader.form(keyword)}`"), at))

        reader.lines(line)
        return Decide(name, span, tuple(branches))

    def _emit(self) -> Step:
        reader = self._reader
        at = reader.peek().span
        event: Expression | None = None
        name = "emit"
        if reader.at("text"):
            event = self.expression()
        elif reader.at("name"):
            name, at = self._named("emit")
        else:
            raise reader.stop_expected(f'the name of an event in quotes (`{reader.form("emit")} "order.paid"`)')
        reader.end_line()
        told = self._told(EMIT_KEYS, (), takes_arguments=True, may_be_empty=event is not None)
        if event is None:
            self._need(told, "event", at, name)
            event = told.own["event"].value
        elif "event" in told.own:
            reader.note(told.own["event"].span, "the event is named above already")
        data = told.value("data")
        if told.arguments:
            if data is not None:
                reader.note(told.arguments[0].span, f"give `{reader.form('data')}` or single entries, not both")
            entries = tuple(told.arguments)
            data = MapOf(entries, Span(entries[0].span.start, entries[-1].value.span.end))
        return Emit(name, at, event, data, told.value("channel"))

    def _wait_for(self) -> Step:
        name, span = self._named("wait for")
        self._reader.end_line()
        told = self._told(WAIT_KEYS, ("schema",), may_be_empty=True)
        return WaitFor(name, span, told.entries(), told.on_timeout, told.parts.get("schema"))

    def _run_flow(self) -> Step:
        flow = self._flow_name()
        self._reader.end_line()
        return RunFlow(flow)

    def _flow_name(self) -> FlowName:
        reader = self._reader
        if not reader.keyword("flow"):
            raise reader.stop_expected(f"`{reader.form('flow')}(NAME)`", [reader.form("flow")])
        reader.expect("(", f"`(` after `{reader.form('flow')}`")
        span = reader.peek().span
        name = reader.name("the name of a flow")
        reader.expect(")", "`)` after the name of the flow")
        return FlowName(name, span)

    def _for_each(self) -> Step:
        reader = self._reader
        span = reader.peek().span
        name = reader.name("a name for the item", place="root")
        if not reader.keyword("in"):
            if name == reader.form("in"):
                raise reader.stop(span, f"a name for the item was expected before `{name}`")
            raise reader.stop_expected(f"`{reader.form('in')}`", [reader.form("in")])
        items = self.expression()
        collect, collect_span = None, None
        if reader.operator(","):
            if not reader.keyword("collect"):
                raise reader.stop_expected(f"`{reader.form('collect')}:`", [reader.form("collect")])
            reader.expect(":", f"`:` after `{reader.form('collect')}`")
            collect_span = reader.peek().span
            collect = reader.name("a name for the results")
        reader.end_line(END, [reader.form("collect")] if collect is None else ())
        body = self.sequence(f"under `{reader.form('for each')}`")
        return ForEach(name, span, items, body, collect, collect_span)

    # ------------------------------------------------------------ blocks under steps

    def _need(self, told: Told, key: str, span: Span, name: str) -> None:
        if key not in told.own:
            if told.is_broken:
                raise Stop
            form = self._reader.form(key)
            for entry in told.arguments:
                if suggestion(entry.name, [form]):
                    raise self._reader.stop(entry.span, f"`{entry.name}` means nothing here; did you mean `{form}`?")
            raise self._reader.stop(span, f"`{name}` needs `{form}: …`")

    def _told(
        self,
        keys: tuple[str, ...],
        parts: tuple[str, ...],
        *,
        takes_arguments: bool = False,
        may_be_empty: bool = False,
        needed: str | None = None,
    ) -> Told:
        """The entries `key: value` and the parts under a step."""
        reader, told = self._reader, Told()
        if not reader.at("indent"):
            if may_be_empty:
                return told
            key = needed or keys[0]
            value = f'{reader.form(key)} "…"' if key in parts else f"{reader.form(key)}: …"
            raise reader.stop_empty(f"nothing stands under this step; put `{value}` there, indented")

        before = len(reader.problems)

        def line() -> None:
            told.is_broken = len(reader.problems) > before
            is_entry = reader.at_operator(":", 1)
            # Of the parts only the task may have a colon, also where it is a single word: `課題: "…"`.
            openings = tuple(part for part in parts if part == "with task") if is_entry else parts
            if (part := reader.keyword(*openings)) is not None:
                self._part(told, part)
                return
            token = reader.peek()
            key = reader.keyword(*keys) if is_entry or not takes_arguments else None
            if key is None and not (takes_arguments and token.kind == "name"):
                known = [reader.form(each) for each in (*keys, *parts)]
                said = f"one of {', '.join(f'`{each}`' for each in known)}"
                raise reader.stop_expected(said, known) if is_entry else reader.stop_line(said, known)
            name = key if key is not None else reader.name("the name of an argument", place="key")
            reader.expect(":", f"`:` after `{token.text}`")
            if name in told.own if key is not None else any(name == entry.name for entry in told.arguments):
                reader.note(token.span, f"`{token.text}` is said twice")
            if key == "on_timeout":
                told.on_timeout = self._flow_name()
                reader.end_line()
                return
            entry = Entry(name, self.expression(), token.span)
            reader.end_line(END)
            if key is not None:
                told.own[key] = entry
            else:
                told.arguments.append(entry)

        reader.lines(line)
        told.is_broken = len(reader.problems) > before
        return told

    def _part(self, told: Told, part: str) -> None:
        reader = self._reader
        if part in told.parts and not told.is_broken:
            reader.note(reader.peek().span, f"`{reader.form(part)}` stands here already; it can be said once")
        match part:
            case "with task":
                reader.operator(":")
                told.parts[part] = self.expression()
                reader.end_line(END)
            case "on failure":
                told.parts[part] = self._handler()
            case "assuming":
                reader.end_line()
                told.parts[part] = self._assumed()
            case _:
                reader.end_line()
                told.parts[part] = self.fields(part)

    def _assumed(self) -> tuple[Entry, ...]:
        reader = self._reader
        entries: list[Entry] = []
        if not reader.at("indent"):
            assuming = reader.form("assuming")
            raise reader.stop_empty(f"nothing stands under `{assuming}`; put `NAME: VALUE` there, indented")

        def line() -> None:
            token = reader.peek()
            name = reader.name("the name of a field")
            reader.expect(":", f"`:` after `{name}`")
            if any(entry.name == name for entry in entries):
                reader.note(token.span, f"`{name}` is said twice")
            entries.append(Entry(name, self.expression(), token.span))
            reader.end_line(END)

        reader.lines(line)
        return tuple(entries)

    def fields(self, part: str) -> tuple[Field, ...]:
        """Lines `NAME as TYPE, is required`."""
        reader = self._reader
        found: dict[str, Field] = {}
        if not reader.at("indent"):
            field = f"NAME {reader.form('as')} TYPE"
            raise reader.stop_empty(f"nothing stands under `{reader.form(part)}`; put `{field}` there, indented")

        def line() -> None:
            token = reader.peek()
            if reader.find(*STEPS, *BRANCHES) and not self._is_field():
                raise reader.stop_line("the name of a field", ())
            self._no_hyphens()
            name = reader.name("the name of a field")
            if name == reader.form("as") and not token.ticks and reader.find(*TYPES) and not reader.find("as"):
                raise reader.stop(token.span, f"the name of a field was expected before `{name}`")
            if reader.at_operator(":"):
                field = f"`NAME {reader.form('as')} TYPE`"
                raise reader.stop_misplaced(token.span, f"`{name}: …` gives a value, but fields stand here: {field}")
            if not reader.keyword("as"):
                raise reader.stop_expected(f"`{reader.form('as')}` and a type")
            type_ = reader.keyword(*TYPES)
            if type_ is None:
                known = [reader.form(each) for each in TYPES]
                raise reader.stop_expected(f"a type ({', '.join(known)})", known)
            made = Field(name, type_, token.span)  # type: ignore[arg-type]  # the keywords of types are the types
            while reader.operator(","):
                made = self._modifier(made)
            reader.end_line("`,` or the end of the line", [reader.form(each) for each in MODIFIERS])
            if name in found:
                reader.note(token.span, f"there is a field `{name}` already")
            found[name] = made

        reader.lines(line)
        return tuple(found.values())

    def _is_field(self) -> bool:
        """Whether a line that begins with a keyword uses it as the name of a field: `run as text`."""
        form = self._reader.form("as").split(" ")
        return all(self._reader.peek(1 + at).text == word for at, word in enumerate(form))

    def _modifier(self, made: Field) -> Field:
        reader = self._reader
        at = reader.peek().span
        modifier = reader.keyword(*MODIFIERS)
        match modifier:
            case "is required" | "required":
                if made.is_required:
                    reader.note(at, "this is said twice")
                return replace(made, is_required=True)
            case "defaults to" | "default":
                reader.operator(":")
                if made.default is not None:
                    reader.note(at, "this is said twice")
                return replace(made, default=self.expression())
            case _:
                known = [reader.form(each) for each in MODIFIERS]
                raise reader.stop_expected(f"`{known[0]}` or `{known[2]} VALUE`", known)


CALLING = ("returns", "assuming", "on failure")

__all__ = ["Statements", "Stop"]
