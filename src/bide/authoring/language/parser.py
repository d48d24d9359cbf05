"""Tokens into a tree: sections, flows and blocks. What single steps look like is in `statements.py`."""

from __future__ import annotations

from collections import Counter
from typing import Final

from bide.authoring.language.reading import Reader, Stop
from bide.authoring.language.source import Problem, Source, Span, in_order
from bide.authoring.language.statements import Statements
from bide.authoring.language.tokens import Token, Tokens, tokenise
from bide.authoring.language.tree import Field, File, Flow, Literal_, Machine, Mark, Sequence, Subscription
from bide.authoring.language.words import FILE, LANGUAGES, SECTIONS, STEPS, TABLE, phrases
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
        while not reader.at("end"):
            before = reader.peek()
            try:
                made = self._top()
                if made is not None:
                    machines.append(made)
            except Stop:
                reader.skip_statement()
                while reader.at("dedent"):
                    reader.advance()
            assert reader.peek() is not before or reader.at("end"), "every line moves on"
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
            if reader.at("indent"):
                raise reader.stop(
                    reader.peek(1).span, "this line is indented, but nothing stands above it that it could belong to"
                )
            known = [reader.form(each) for each in FILE]
            raise reader.stop_expected(f"`{reader.form('machine')} NAME`", known)
        return self._machine()

    def _language_line(self) -> None:
        """`language: es`, with the first word in that language or in English."""
        reader = self._reader
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
        version, main = "1", None
        handlers: list[Sequence] = []
        self._flows = {}
        self._statements.flows = self._flows
        seen: dict[str, Span] = {}
        if not reader.at("indent"):
            raise reader.stop(token.span, f"machine `{name}` is empty; its sections stand indented under it")

        def section() -> None:
            nonlocal version, main
            span = reader.peek().span
            keyword = reader.keyword(*SECTIONS)
            if keyword is None:
                known = [reader.form(each) for each in SECTIONS]
                raise reader.stop_expected(f"a section ({', '.join(f'`{each}`' for each in known)})", known)
            if keyword in seen and keyword != "subscribes":
                reader.note(span, f"this machine has a section `{reader.form(keyword)}` already")
            seen[keyword] = span
            match keyword:
                case "version":
                    version = self._text_after_colon("version")
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
                        reader.note(span, f"there is a `{reader.form('on failure')}` already")
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
            version,
            parts.get("accepts"),
            parts.get("responds with"),
            tuple(subscriptions),
            self._flows,
        )

    def _machine_name(self) -> str:
        reader = self._reader
        if reader.at("text"):
            return self._plain_text("the name of the machine")
        return reader.name("the name of the machine")

    def _plain_text(self, what: str) -> str:
        value = self._statements.expression()
        if not isinstance(value, Literal_) or not isinstance(value.value, str) or not value.value:
            raise self._reader.stop(value.span, f"{what} is a text that is not empty and has no ${{…}} in it")
        return value.value

    def _text_after_colon(self, keyword: str) -> str:
        reader = self._reader
        reader.expect(":", f"`:` after `{reader.form(keyword)}`")
        text = self._plain_text(f"`{reader.form(keyword)}`")
        reader.end_line()
        return text

    def _subscription(self) -> Subscription:
        reader = self._reader
        span = reader.peek().span
        if not reader.at("text"):
            raise reader.stop_expected("the name of an event in quotes")
        event = self._plain_text("the name of an event")
        reader.end_line()
        return Subscription(event, span)

    def _flow_section(self) -> None:
        reader = self._reader
        reader.end_line()
        if not reader.at("indent"):
            raise reader.stop_expected(f"`{reader.form('flow')} NAME`, indented")
        reader.lines(self._one_flow)

    def _one_flow(self) -> None:
        reader = self._reader
        if not reader.keyword("flow"):
            raise reader.stop_expected(f"`{reader.form('flow')} NAME`", [reader.form("flow")])
        token = reader.peek()
        name = reader.name("the name of the flow")
        reader.end_line()
        if name in self._flows:
            reader.note(token.span, f"there is a flow `{name}` already")
        body = self._statements.sequence(f"in flow `{name}`")
        self._flows.setdefault(name, Flow(name, token.span, body))
