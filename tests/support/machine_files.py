"""Machine files made by chance: what hypothesis writes is valid, in English, with names and layout of every kind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from bide.authoring.language.words import LANGUAGES, TABLE, reserved

MADE = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # these files shrink slowly, and are short as they are
)

# What a file says has nothing to do with where its runs are kept: every language once, every store once.
EVERY_LANGUAGE_AND_EVERY_STORE = pytest.mark.parametrize(
    ("language", "store_url"),
    [*((language, "memory") for language in LANGUAGES), ("en", "sqlite"), ("en", "postgres")],
    indirect=["store_url"],
)

# Names that are keywords somewhere are the interesting ones.
FOREIGN = sorted({word for language in LANGUAGES[1:] for word in reserved(language)} - reserved("en") - {"error"})
ENGLISH = sorted(form for form in (row["en"] for row in TABLE.values()) if form.isidentifier())
PLAIN = ["a", "order_id", "größe", "名前", "x1", "_private", "result"]

names = st.one_of(
    st.sampled_from(PLAIN),
    st.sampled_from(FOREIGN),
    st.sampled_from(ENGLISH).map(lambda word: f"`{word}`"),
    st.sampled_from([*PLAIN, *FOREIGN]).map(lambda word: f"`{word}`"),
    st.sampled_from(FOREIGN).map(lambda word: f"``{word}``"),
)
field_names = st.one_of(names, st.sampled_from(ENGLISH))  # nothing else can stand there
texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=12).map(
    lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$") + '"'
)
comments = st.one_of(st.just(""), st.just("  // wait for, машина, 待つ"), st.just(" //"))


def expressions() -> st.SearchStrategy[str]:
    roots = st.one_of(
        st.sampled_from(["true", "false", "null", "1", "2.5", "-3", "input", '""']),
        texts,
        st.builds("input.{}".format, field_names),
        st.builds("steps.{}.{}".format, names, field_names),
    )
    return st.recursive(
        roots,
        lambda inner: st.one_of(
            st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/", "==", "<", "and", "or"]), inner),
            st.builds("(not {})".format, inner),
            st.builds("[{}, {}]".format, inner, inner),
            st.builds("{{{}: {}}}".format, field_names, inner),
            inner.map(lambda value: f'"a ${{{" ".join(value.split())}}} b"'),
            st.builds("{{\n{}:\n  {}\n}}".format, field_names, inner),
        ),
        max_leaves=6,
    )


EXPRESSIONS = expressions()  # made once: making a strategy costs more than drawing from it

types = st.sampled_from(["text", "number", "boolean", "list", "map", "date"])
modifiers = st.sampled_from(["", ", is required", ", required", ", defaults to null", ", default: null"])


@st.composite
def fields(draw: Any) -> list[str]:
    unique = draw(st.lists(field_names, min_size=1, max_size=3, unique_by=lambda name: name.strip("`")))
    return [f"{name} as {draw(types)}{draw(modifiers)}{draw(comments)}" for name in unique]


FIELDS = fields()


def indented(lines: list[str], by: str) -> list[str]:
    return [by + line if line.strip() else line for line in lines]


@st.composite
def steps(draw: Any, depth: int = 0) -> list[str]:
    indent = draw(st.sampled_from(["  ", "    ", "\t"]))
    name, value, note = draw(names), draw(EXPRESSIONS), draw(comments)
    kinds = ["compute", "http", "call", "launch", "ask", "from", "wait", "emit", "run"] + ["decide", "each"] * (
        depth < 2
    )
    match draw(st.sampled_from(kinds)):
        case "compute":
            return [f"compute {name}{note}", indent + value]
        case "http":
            entries = [f"url: {value}", 'method: "POST"', f"headers: {draw(EXPRESSIONS)}{note}", "retry: 3"]
            return [f"action {name} http", *indented(entries, indent)]
        case "call" | "launch" as kind:
            head = f"action {name} call" if kind == "call" else f"launch {name}"
            argument = draw(names)
            return [head, *indented(['machine: "m"', f"{argument}: {value}"], indent)]
        case "ask":
            body = [f"with task {value}", "returns", *indented(draw(FIELDS), indent)]
            return [f'ask {name}, using: "a:b"{note}', *indented(body, indent)]
        case "from":
            return [f"ask {name} from {draw(names)}", indent + f"{draw(names)}: {value}"]
        case "wait":
            body = [
                'event: "e"',
                "timeout: forever",
                "on_timeout: flow(f)",
                *draw(st.lists(st.sampled_from(TERMS), unique=True)),
                "schema",
                *indented(draw(FIELDS), indent),
            ]
            return [f"wait for {name}{note}", *indented(body, indent)]
        case "emit":
            return ['emit "e"', indent + f"data: {value}"]
        case "decide":
            branches = [f"when {value}", *indented(draw(STEPS[depth + 1]), indent), "otherwise"]
            branches += indented(draw(STEPS[depth + 1]), indent)
            return [f"decide {name}", *indented(branches, indent)]
        case "each":
            item = draw(names)
            return [f"for each {item} in {value}, collect: {name}", *indented(draw(STEPS[depth + 1]), indent)]
        case _:
            return ["run flow(f)"]


TERMS = ("reminders: []", 'escalate: {"1h": "ann"}', "metadata: {a: 1}", "quorum: 2", "veto: true", 'decides: "a"')
HEADINGS = ('version: "2"', 'subscribes "order.*"', 'queue: "mail"', "priority: -1", "retries: 0")


def is_field(text: str) -> bool:
    return len(text) > 2 and "," not in text and text.isprintable()


STEPS = [steps(depth) for depth in range(3)]


@st.composite
def machine_files(draw: Any) -> str:
    """A file whose syntax is right; what it means may be nonsense."""
    indent = draw(st.sampled_from(["  ", "    ", "\t"]))
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    lines = ["// first", *draw(st.sampled_from([[], ["language: en"], [""]]))]
    lines += [f"machine {draw(names)}{draw(comments)}"]
    body = draw(st.lists(st.sampled_from(HEADINGS), unique=True))
    if draw(st.booleans()):
        body += [f"redact: {draw(field_names)}, {draw(texts.filter(is_field))}"]
    if draw(st.booleans()):
        body += ["accepts", *indented(draw(FIELDS), indent), ""]
    body += ["implements"]
    for _ in range(draw(st.integers(1, 3))):
        body += indented(draw(STEPS[0]), indent) + draw(st.sampled_from([[], [""], ["", "  // note", ""]]))
    body += ["flows", indent + "flow f", *indented(draw(STEPS[0]), indent * 2)]
    lines += indented(body, indent)
    text: str = newline.join("\n".join(lines).split("\n")) + draw(st.sampled_from(["", newline]))
    return text
