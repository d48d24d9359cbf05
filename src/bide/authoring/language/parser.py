"""Tokens into a tree: sections, flows and blocks. What single steps look like is in `statements.py`."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from bide.authoring.language.heading import plain_text, read_heading
from bide.authoring.language.reading import Empty, Reader, Stop
from bide.authoring.language.source import Problem, Source, Span, in_order
from bide.authoring.language.statements import Statements
from bide.authoring.language.tokens import Token, Tokens, tokenise
from bide.authoring.language.tree import Field, File, Flow, Machine, Mark, Sequence, Subscription
from bide.authoring.language.words import FILE, HEADING, LANGUAGES, SECTIONS, STEPS, TABLE, phrases
from bide.core.topics import BadName, check_pattern
from bide.errors import LanguageError

TELLING: Final = tuple(keyword for keyword in (*FILE, *SECTIONS, *STEPS, "when", "otherwise", "with task", "returns"))


def parse(text: str, name: str = "machine file") -> File:
    """Read a machine file. Raises `LanguageError` with every problem of its syntax."""
    file, problems = read(text, name)
    if problems:
        raise LanguageError(tuple(in_order(problems)))
    assert file is not None
    return file


def read(text: str, name: str = "machine file") -> tuple[File | None, list[Problem]]:
    """What can be read of a machine file, and the problems of its syntax."""
    source = Source(text, name)
    tokens = tokenise(source)
    if tokens.problems:
        return None, tokens.problems
    parser = _Parser(source, tokens)
    return parser.file(), parser.problems


def language_of(source: Source, tokens: list[Token]) -> str:
    """The language that a file is in: the one it names, or the one whose words begin most of its lines (L5)."""
    marks: list[Mark] = []
    starts = [
        index
        for index, token in enumerate(tokens)
        if token.kind == "name" and (index == 0 or tokens[index - 1].kind in ("newline", "indent", "dedent"))
    ]
    named = _named(tokens, starts)
    if named is not None:
        return named
    scores: Counter[str] = Counter()
    for language in LANGUAGES:
        reader = Reader(source, tokens, language, marks, [])
        table = phrases(language, TELLING)
        for index in starts:
            if tokens[index].text in table:
                reader._at = index
                scores[language] += reader.find(*TELLING) is not None
    return max(LANGUAGES, key=lambda language: (scores[language], -LANGUAGES.index(language)))


def _named(tokens: list[Token], starts: list[int]) -> str | None:
    """What `language: xx` says, in whichever language it says it."""
    for index in starts[:1]:
        following = tokens[index + 1 : index + 3]
        is_named = tokens[index].text in TABLE["language"].values() and len(following) == 2
        if is_named and following[0].text == ":" and following[1].text in LANGUAGES:
            return following[1].text
    return None


class _Parser:
    def __init__(self, source: Source, tokens: Tokens) -> None:
        self._source = source
        self.problems: list[Problem] = []
        self._marks: list[Mark] = []
        self._language = language_of(source, tokens.tokens)
        self._reader = Reader(source, tokens.tokens, self._language, self._marks, self.problems)
        self._flows: dict[str, Flow] = {}
        self._statements = Statements(self._reader, self._flow_section)

    def file(self) -> File:
        machines: list[Machine] = []
        reader = self._reader

        def top() -> None:
            made = self._top()
            if made is not None:
                machines.append(made)

        was_empty = False
        while not reader.at("end"):
            was_empty = reader.attempt(top, was_empty)
            while reader.at("dedent"):
                reader.advance()
        if not machines and not self.problems:
            reader.note(Span(0, 1), f"the file has no machine; begin one with `{reader.form('machine')} NAME`")
        names = [machine.name for machine in machines]
        for index, machine in enumerate(machines):
            if machine.name in names[:index]:
                reader.note(machine.span, f"there is a machine `{machine.name}` in this file already")
        return File(self._source, self._language, tuple(machines), tuple(self._marks))

    def _top(self) -> Machine | None:
        reader = self._reader
        if reader.at_operator(":", 1) and reader.peek().text in TABLE["language"].values():
            self._language_line()
            return None
        keyword = reader.keyword(*FILE)
        if keyword is None:
            known = [reader.form(each) for each in FILE]
            raise reader.stop_line(f"`{reader.form('machine')} NAME`", known, once=True)
        return self._machine()

    def _language_line(self) -> None:
        """`language: es`, with the first word in that language or in English."""
        reader = self._reader
        if not reader.is_at_start():
            raise reader.stop(reader.peek().span, f"`{reader.peek().text}:` stands in the first line of a file")
        word = reader.advance()
        self._marks.append(Mark(word.span, "language"))
        reader.advance()
        token = reader.peek()
        if word.text not in (TABLE["language"]["en"], reader.form("language")):
            raise reader.stop(word.span, f"the file is in `{self._language}`; write `{reader.form('language')}` here")
        if token.kind != "name" or token.text not in LANGUAGES:
            raise reader.stop_expected(f"one of {', '.join(LANGUAGES)}", LANGUAGES)
        if token.text != self._language:
            raise reader.stop(token.span, f"the file is in `{self._language}` already; a file is in one language")
        reader.advance()
        self._marks.append(Mark(token.span, None, token.text, place="language"))
        reader.end_line()

    def _machine(self) -> Machine:
        reader = self._reader
        token = reader.peek()
        name = self._machine_name()
        reader.end_line()
        parts: dict[str, tuple[Field, ...]] = {}
        subscriptions: list[Subscription] = []
        said: dict[str, Any] = {}
        main: Sequence | None = None
        handlers: list[Sequence] = []
        self._flows = {}
        self._statements.flows = self._flows
        seen: dict[str, Span] = {}
        if not reader.at("indent"):
            raise reader.stop_empty(f"machine `{name}` is empty; its sections stand under it, indented")

        def section() -> None:
            span = reader.peek().span
            keyword = reader.keyword(*SECTIONS)
            if keyword is None:
                known = [reader.form(each) for each in SECTIONS]
                sections = [reader.form(each) for each in SECTIONS if each not in HEADING]
                raise reader.stop_line(f"a section ({', '.join(f'`{each}`' for each in sections)})", known)
            if keyword in seen and keyword != "subscribes":
                reader.note(span, f"this machine has `{reader.form(keyword)}` already; it can be said once")
            try:
                read_section(keyword, span)
            except Empty:
                raise  # what is meant may follow under the same word
            except Stop:
                seen[keyword] = span
                raise
            seen[keyword] = span

        def read_section(keyword: str, span: Span) -> None:
            nonlocal main
            match keyword:
                case "version" | "queue" | "priority" | "retries" | "redact":
                    said[keyword] = read_heading(reader, keyword)
                case "subscribes":
                    subscriptions.append(self._subscription())
                case "accepts" | "responds with":
                    reader.end_line()
                    parts[keyword] = self._statements.fields(keyword)
                case "implements":
                    reader.end_line()
                    main = self._statements.sequence(f"under `{reader.form('implements')}`", allows_flows=True)
                case "on failure":
                    reader.end_line()
                    handlers.append(self._statements.sequence(f"under `{reader.form('on failure')}`"))
                    if main is not None and main.on_failure is not None:
                        reader.note(span, f"`{reader.form('on failure')}` stands above already; it can be said once")
                case "flows":
                    self._flow_section()

        before = len(reader.problems)
        reader.lines(section)
        if main is None and "implements" not in seen and len(reader.problems) == before:
            reader.note(token.span, f"machine `{name}` has no section `{reader.form('implements')}`")
        if main is not None and handlers:
            main = Sequence(main.steps, handlers[0])
        return Machine(
            name,
            token.span,
            self._source,
            main if main is not None else Sequence(()),
            self._language,
            accepts=parts.get("accepts"),
            responds=parts.get("responds with"),
            subscribes=tuple(subscriptions),
            flows=self._flows,
            **said,
        )

    def _machine_name(self) -> str:
        reader = self._reader
        if reader.at_operator(":"):
            reader.note(reader.peek().span, f"no `:` stands here; write `{reader.form('machine')} NAME`")
            raise Empty
        if reader.at("text"):
            return plain_text(reader, "the name of the machine")
        return reader.name("the name of the machine")

    def _subscription(self) -> Subscription:
        reader = self._reader
        span = reader.peek().span
        if reader.at_operator(":"):
            raise reader.stop(span, f'no `:` stands here; write `{reader.form("subscribes")} "order.*"`')
        if not reader.at("text"):
            raise reader.stop_expected("the name of an event in quotes")
        event = plain_text(reader, "the name of an event")
        try:
            check_pattern(event)
        except BadName as error:
            raise reader.stop(span, str(error)) from error
        reader.end_line()
        return Subscription(event, span)

    def _flow_section(self) -> None:
        reader = self._reader
        reader.end_line()
        if not reader.at("indent"):
            flows, flow = reader.form("flows"), reader.form("flow")
            raise reader.stop_empty(f"nothing stands under `{flows}`; put `{flow} NAME` there, indented")
        reader.lines(self._one_flow)

    def _one_flow(self) -> None:
        reader = self._reader
        if not reader.keyword("flow"):
            raise reader.stop_line(f"`{reader.form('flow')} NAME`", [reader.form("flow")])
        token = reader.peek()
        name = reader.name("the name of the flow")
        reader.end_line()
        if name in self._flows:
            reader.note(token.span, f"there is a flow `{name}` already")
        body = self._statements.sequence(f"in flow `{name}`")
        self._flows.setdefault(name, Flow(name, token.span, body))
