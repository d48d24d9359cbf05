"""One layout for every file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from bide.authoring.language.formatting import format_file
from bide.authoring.language.parser import parse
from bide.authoring.language.source import Source
from bide.authoring.language.tokens import tokenise
from tests.support.machine_files import MADE, machine_files

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.machine"))


def meaning(text: str) -> list[tuple[str, str, int]]:
    """The tokens without their places."""
    return [(token.kind, token.text, token.ticks) for token in tokenise(Source(text)).tokens]


@MADE
@given(machine_files())
def test_formatting_keeps_the_meaning_and_formatting_again_changes_nothing(text: str) -> None:
    once = format_file(text)
    assert format_file(once) == once
    assert meaning(once) == meaning(text)
    assert sum("//" in line for line in once.splitlines()) == sum("//" in line for line in text.splitlines())
    parse(once)


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_the_examples_are_formatted(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert format_file(text) == text


def test_what_formatting_does() -> None:
    messy = (
        "machine   m   // why\n\n\n\n  accepts\n     a   as  text ,is required\n"
        "  implements\n   compute   x\n      { a :1 ,\n  b: [ 1,2 ] ,\n // in it\n c: - 1+(2*3) }\n"
        "   run   flow( f )\n  flows\n    flow f\n      compute y\n        input . a"
    )
    assert format_file(messy) == (
        "machine m  // why\n\n    accepts\n        a as text, is required\n"
        "    implements\n        compute x\n            {a: 1,\n                b: [1, 2],\n"
        "                // in it\n                c: -1 + (2 * 3)}\n"
        "        run flow(f)\n    flows\n        flow f\n            compute y\n                input.a\n"
    )
