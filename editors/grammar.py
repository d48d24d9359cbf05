"""Writes the TextMate grammar of machine files from the table of keywords: `python editors/grammar.py`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bide.authoring.language import words

PLACE = Path(__file__).parent / "vscode" / "syntaxes" / "machine.tmLanguage.json"
SECTIONS = ("machine", "language", "accepts", "responds with", "implements", "flows", "flow", "subscribes")
KEYS = tuple(sorted({*words.HTTP_KEYS, *words.CALL_KEYS, *words.WAIT_KEYS, *words.EMIT_KEYS, "collect", "using"}))
STEPS = tuple(sorted({*words.STEPS, *words.PARTS, *words.BRANCHES, "flow", "http", "call"} - {"flows"}))
INSIDE = ("as", "in", "from", *words.MODIFIERS, "and", "or", "not")


def any_of(keywords: tuple[str, ...]) -> str:
    """A pattern for the forms of these keywords in every language, the longest first."""
    forms = {words.TABLE[keyword][language] for keyword in keywords for language in words.LANGUAGES}
    return "|".join(re.escape(form).replace("\\ ", " ") for form in sorted(forms, key=lambda form: (-len(form), form)))


def grammar() -> dict[str, Any]:
    edge, start = r"(?![\p{L}\p{N}_])", r"(?<![\p{L}\p{N}_.`])"

    def words_as(scope: str, keywords: tuple[str, ...]) -> dict[str, str]:
        return {"name": f"{scope}.machine", "match": f"{start}(?:{any_of(keywords)}){edge}"}

    text = {
        "name": "string.quoted.double.machine",
        "begin": '"',
        "end": '"|$',
        "patterns": [
            {"name": "constant.character.escape.machine", "match": r"\\(?:u[0-9a-fA-F]{4}|.)"},
            {
                "name": "meta.embedded.machine",
                "begin": r"\$\{",
                "end": r"\}|$",
                "patterns": [{"include": "#expression"}],
            },
        ],
    }
    expression = [
        text,
        {"name": "variable.other.machine", "match": r"`+[^`]*`+"},
        words_as("constant.language", tuple(words.CONSTANTS)),
        words_as("variable.language", words.ROOTS),
        words_as("keyword.operator.word", INSIDE),
        {"name": "constant.numeric.machine", "match": r"\b[0-9]+(?:\.[0-9]+)?\b"},
        {"name": "keyword.operator.machine", "match": r"==|!=|<=|>=|[-+*/<>]"},
    ]
    return {
        "name": "bide machine file",
        "scopeName": "source.machine",
        "fileTypes": ["machine"],
        "patterns": [
            {"name": "comment.line.double-slash.machine", "match": r"//.*$"},
            {
                "match": rf"^\s*((?:{any_of(SECTIONS)}){edge})(?!\s*:)",
                "captures": {"1": {"name": "keyword.control.section.machine"}},
            },
            {
                "match": rf"^\s*((?:{any_of(STEPS)}){edge})(?!\s*:)",
                "captures": {"1": {"name": "keyword.control.step.machine"}},
            },
            {
                "match": rf"{start}((?:{any_of((*KEYS, *words.HEADING, 'language'))}){edge})\s*(?=[:：])",
                "captures": {"1": {"name": "support.type.property-name.machine"}},
            },
            {"match": rf"{start}(?:{any_of(('http', 'call', 'flow'))}){edge}", "name": "keyword.control.machine"},
            {"match": rf"{start}(?:{any_of(words.TYPES)}){edge}(?=\s*(?:[,，]|//|$))", "name": "support.type.machine"},
            {"include": "#expression"},
        ],
        "repository": {"expression": {"patterns": expression}},
    }


def written() -> str:
    return json.dumps(grammar(), ensure_ascii=False, indent=2) + "\n"


if __name__ == "__main__":
    PLACE.write_text(written(), encoding="utf-8")
