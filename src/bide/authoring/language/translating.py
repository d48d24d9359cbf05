"""The same machine in another language: only keywords change, and the backticks that tell a name from one (L5).

Nothing else of the text is touched, so comments and layout stay. A name keeps the backticks that it has beyond those
that it needs, so that the way back gives the same bytes.
"""

from __future__ import annotations

from bide.authoring.language.parser import parse
from bide.authoring.language.tree import File, Mark
from bide.authoring.language.words import EXPRESSION, LANGUAGES, TABLE, USER_KEYS, forms, reserved
from bide.errors import BadInput


def translate(text: str, to: str, name: str = "machine file") -> str:
    """The text in another language. Raises `LanguageError` where its syntax is wrong.

    >>> translate("machine pay\\n  implements\\n    wait for money\\n", "es")
    'máquina pay\\n  implementa\\n    espera money\\n'
    """
    if to not in LANGUAGES:
        raise BadInput(f"there is no language {to!r}; known are {', '.join(LANGUAGES)}")
    file = parse(text, name)
    return _replaced(file, to)


def _replaced(file: File, to: str) -> str:
    text, at = file.source.text, 0
    pieces: list[str] = []
    for mark in sorted(file.marks, key=lambda mark: mark.span):
        if mark.span.start < at:
            continue  # read twice, for a look ahead
        pieces += (text[at : mark.span.start], _written(mark, file.language, to))
        at = mark.span.end
    return "".join([*pieces, text[at:]])


def _written(mark: Mark, language: str, to: str) -> str:
    if mark.keyword is not None:
        return TABLE[mark.keyword][to]
    if mark.place == "language":
        return to
    extra = max(0, mark.ticks - _needed(mark, language))
    ticks = "`" * (extra + _needed(mark, to))
    return f"{ticks}{mark.name}{ticks}"


def _needed(mark: Mark, language: str) -> int:
    """How many backticks a name needs at its place, so that it is not read as a keyword.

    English is the language that names are measured in: there, only those are needed without which a file would be
    read otherwise. Elsewhere, every name that is a keyword is told apart.
    """
    must = {"root": EXPRESSION, "key": tuple(sorted(USER_KEYS))}.get(mark.place, ())
    if mark.name in forms(language, must):
        return 1
    if mark.place == "root":
        return 0
    return int(language != "en" and mark.name in reserved(language))
