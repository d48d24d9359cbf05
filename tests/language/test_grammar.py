"""The grammar of the reference is the language: it takes what the parser takes, and nothing else (L1, L2, L5)."""

from __future__ import annotations

import ast
import random
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from lark import Lark
from lark.exceptions import LarkError
from lark.indenter import DedentError

from bide.authoring.language.parser import language_of, read
from bide.authoring.language.source import Source
from bide.authoring.language.tokens import tokenise
from bide.authoring.language.translating import translate
from bide.authoring.language.words import LANGUAGES, TABLE
from bide.cli.templates import TEMPLATES
from tests.language.test_checking import ALL, GOOD, RICH, SIGNS, Mistake
from tests.language.test_fuzz import PIECES
from tests.support.machine_files import MADE, machine_files

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/machine-grammar.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```(lark|python)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
SHARES, CHANGES_PER_SHARE = 2, 200

# What the page says that the grammar does not say, by what the parser says of it.
BEYOND = re.compile(
    r"already|is said twice|not both|must not be empty|at most \d+ letters|is a whole number from|has no comma"
    r"|event pattern|does not fit into 64 bits|the number is too|nested more than|longer than|is not closed on its line"
    r"|fits no block|stands above already|is the last part of its block"
)


@cache
def page() -> ModuleType:
    """The program of the page."""
    made = ModuleType("grammar_of_the_reference")
    exec(compile(BLOCKS["python"], "machine-grammar.md", "exec"), vars(made))
    return made


@cache
def reader(language: str) -> Lark:
    made: Lark = page().reader(BLOCKS["lark"], {keyword: forms[language] for keyword, forms in TABLE.items()})
    return made


def refusal(text: str) -> Exception | None:
    """Why the grammar does not take a file, in the language that the parser reads it in."""
    source = Source(text, "")
    language = language_of(source, tokenise(source).tokens)
    try:
        page().parse(reader(language), text)
    except (LarkError, DedentError) as error:
        return error
    return None


def differs(text: str) -> str | None:
    """How the grammar and the parser differ on a file."""
    problems, refused = [str(problem) for problem in read(text)[1]], refusal(text)
    if not problems and refused is not None:
        return f"the grammar refuses what the parser reads: {refused}"
    if problems and refused is None and not BEYOND.search(problems[0]):
        return f"the grammar takes what the parser refuses: {problems[0]}"
    return None


BEGINNING = re.compile(rf"^(?:{'|'.join(TABLE['machine'].values())}) \S", re.MULTILINE)


def written(text: str) -> Iterator[str]:
    """The machine files that stand as texts in a Python program."""
    if not any(f"{word} " in text for word in TABLE["machine"].values()):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            dedented = textwrap.dedent(node.value)
            if BEGINNING.search(dedented):
                yield dedented


def all_files() -> Iterator[tuple[str, str]]:
    """Every machine file of the project: files, templates, and texts in tests, examples and pages."""
    for path in sorted((*ROOT.glob("examples/*.machine"), *ROOT.glob("tests/**/*.machine"))):
        yield path.name, path.read_text(encoding="utf-8")
    for name, template in TEMPLATES.items():
        if "machine NAME" in template:
            yield f"template {name}", template
    for path in sorted(p for folder in ("tests", "examples", "benchmarks") for p in ROOT.glob(f"{folder}/**/*.py")):
        for text in written(path.read_text(encoding="utf-8")):
            yield path.name, text
    for path in sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))):
        for kind, block in re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(encoding="utf-8"), re.M | re.S):
            if kind == "python":
                yield from ((path.name, text) for text in written(compatible(block)))
            elif kind == "machine":
                yield path.name, block


def compatible(block: str) -> str:
    """Code of a page with `await` at its top level, inside of a function."""
    return "async def page():\n" + textwrap.indent(block, " ", lambda line: True) if "await" in block else block


FILES = sorted(set(all_files()))


def test_L2_the_grammar_takes_every_machine_file_of_the_project() -> None:
    readable = [(name, text) for name, text in FILES if not read(text)[1]]
    assert {"payment.machine", "template approval", "first-machine-file.md", "test_waiting.py"} <= {
        name for name, _ in readable
    }
    assert [(name, refused) for name, text in readable if (refused := refusal(text))] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_L5_the_grammar_takes_the_files_in_every_language(language: str) -> None:
    originals = [GOOD, RICH, *(text for name, text in FILES if name.endswith(".machine"))]
    assert [refused for text in originals if (refused := refusal(translate(text, language)))] == []


@pytest.mark.parametrize("mistake", ALL, ids=str)
def test_L6_the_grammar_refuses_what_is_no_syntax_and_takes_what_only_makes_no_sense(mistake: Mistake) -> None:
    assert differs(mistake.text) is None


def test_L6_the_grammar_refuses_most_of_the_broken_files_that_the_parser_refuses() -> None:
    """What the parser alone speaks of stays a short list."""
    unread = [mistake.text for mistake in ALL if read(mistake.text)[1]]
    assert sum(refusal(text) is not None for text in unread) >= len(unread) - 25
    assert len(unread) > 200


def test_L6_the_grammar_finds_every_sign_that_is_missing_or_there_twice_as_the_parser_does() -> None:
    for at in SIGNS:
        for text in (GOOD[:at] + GOOD[at + 1 :], GOOD[:at] + GOOD[at] + GOOD[at:]):
            assert differs(text) is None


@MADE
@given(machine_files())
def test_L2_the_grammar_takes_whatever_files_the_parser_takes(text: str) -> None:
    assert differs(text) is None


@pytest.mark.parametrize("share", range(SHARES))
def test_L6_the_grammar_and_the_parser_agree_on_files_with_one_change(share: int) -> None:
    originals = [translate(text, language) for text in (GOOD, RICH) for language in LANGUAGES]
    for seed in range(share * CHANGES_PER_SHARE, (share + 1) * CHANGES_PER_SHARE):
        dice = random.Random(seed)
        text = dice.choice(originals)
        words = list(re.finditer(r"\w+|\S| +", text))
        one, other = dice.choice(words), dice.choice(words)
        instead = dice.choice(("", f"{one[0]} {one[0]}", other[0], f"`{one[0]}`", dice.choice(PIECES)))
        changed = text[: one.start()] + instead + text[one.end() :]
        assert differs(changed) is None, f"seed {seed}:\n{changed}"
