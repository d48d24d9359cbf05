"""The documentation is true: its examples run, its links lead somewhere, its tables agree with the code."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import re
import shlex
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from datetime import timedelta
from itertools import dropwhile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

import bide
import bide.testing
from bide import errors
from bide.authoring.language.words import TABLE
from bide.cli.program import ALONE, program
from bide.core.durations import format_duration
from bide.core.records import FINAL
from bide.engine.settings import Settings
from bide.stores.postgres import migrate
from tests.support.postgres import connect

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
SOURCE = ROOT / "src" / "bide"
CORE = sorted((SOURCE / "core").glob("*.py"))


def each(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=[str(page.relative_to(ROOT)) for page in pages])


# ---------------------------------------------------------------- reading a page


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int  # of its first line, counted from 1
    follows: bool  # nothing but empty lines between it and the block before


FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found, end = [], -1
    for match in FENCE.finditer(text):
        follows = end >= 0 and not text[end : match.start()].strip()
        found.append(Block(match[1], match[2], text.count("\n", 0, match.start()) + 2, follows))
        end = match.end()
    return found


def table(page: Path, first: str) -> list[list[str]]:
    """The rows of the table whose first column is headed *first*, without markup."""
    rows: list[list[str]] = []
    is_inside = False
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().replace("`", "") for cell in line.strip("| ").split(" | ")]
        if line.startswith("|") and cells[0] == first:
            is_inside = True
        elif is_inside and line.startswith("|"):
            rows.append(cells)
        else:
            is_inside = False
    return [row for row in rows if not set(row[0]) <= set("-:|")]


# ---------------------------------------------------------------- examples


@each([page for page in PAGES if "```python\n" in page.read_text(encoding="utf-8")])
async def test_every_python_example_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page are one program. A `text` block right after one is what that one prints."""
    examples = blocks(page)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BIDE_STORE", raising=False)
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", None)  # what a page sets up ends with the page
    program = ModuleType("docs_example")
    monkeypatch.setitem(sys.modules, program.__name__, program)
    for block, following in zip(examples, [*examples[1:], None], strict=True):
        if block.language != "python":
            continue
        printed = await run_example(page, block, program)
        if following is not None and following.language == "text" and following.follows:
            assert printed == following.text, f"{page.name}:{following.line} shows another output"


async def run_example(page: Path, block: Block, program: ModuleType) -> str:
    # A page says how long one waits in life. Here a busy machine may need longer, and nothing shows how long it was.
    text = block.text.replace('result(timeout="10s")', 'result(timeout="5m")')
    text = re.sub(r'(result\(\w+, timeout=)"10s"', r'\1"5m"', text)
    source = "\n" * (block.line - 1) + text  # so that a traceback names the line of the page
    code = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        coroutine = eval(code, vars(program))
        if code.co_flags & inspect.CO_COROUTINE:
            await coroutine
    return printed.getvalue()


def commands(page: Path) -> Iterator[list[str]]:
    """The words of each `$ bide …` line, without what is put into the environment."""
    for block in blocks(page):
        for line in block.text.splitlines() if block.language == "console" else []:
            words = shlex.split(line.removeprefix("$ "), comments=True) if line.startswith("$ ") else []
            words = list(dropwhile(lambda word: re.match(r"[A-Z_]+=", word), words))
            if words[:1] == ["bide"]:
                yield words[1:]


@each([page for page in PAGES if any(commands(page))])
def test_the_program_understands_every_command_of_a_page(page: Path) -> None:
    for words in commands(page):
        command: Any = typer.main.get_command(program())
        context, name = None, "bide"
        while hasattr(command, "resolve_command"):  # a group: the next word names one of its verbs
            context = command.make_context(name, list(words), parent=context)
            if name in ALONE and (not words or words[0] not in command.commands):
                break  # it does something by itself: its own options were read with the context
            name, command, words = command.resolve_command(context, words)
        else:
            command.make_context(name, words, parent=context)


def test_pages_that_teach_have_examples() -> None:
    teaching = [ROOT / "README.md", *DOCS.glob("tutorial/*.md")]
    without = [page.name for page in teaching if not any(block.language == "python" for block in blocks(page))]
    assert not without


# ---------------------------------------------------------------- links

LINK = re.compile(r"\[[^\]\[]+\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each(PAGES)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(prose(page)):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("kind", ["tutorial", "how-to", "reference", "explanation", "decisions"])
def test_the_index_of_the_documentation_names_every_page(kind: str) -> None:
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in LINK.findall(prose(DOCS / "README.md"))}
    assert not {page.name for page in (DOCS / kind).glob("*.md") if page not in linked}


# ---------------------------------------------------------------- tables


def test_the_table_of_settings_is_what_settings_are() -> None:
    written = {row[0]: (row[1], row[2]) for row in table(DOCS / "reference/settings.md", "setting")}
    real = {
        setting.name: (f"BIDE_{setting.name.upper()}", shown(setting.default))
        for setting in fields(Settings)
        if setting.default is not MISSING
    }
    assert written == real


def shown(value: Any) -> str:
    match value:
        case timedelta():
            return format_duration(value)
        case bool():
            return str(value).lower()
        case _:
            return str(value) or "none"


def test_the_table_of_errors_is_what_errors_are() -> None:
    written = {row[0]: (row[1], int(row[2])) for row in table(DOCS / "reference/receipts-and-errors.md", "error")}
    real = {
        error.__name__: (error.code, error.status)
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.BideError)
    }
    assert written == real


def test_the_table_of_ledger_entries_is_what_the_core_writes() -> None:
    written = {row[0] for row in table(DOCS / "reference/ledger-entries.md", "entry")}
    assert written == {name for file in CORE for name in entry_names(ast.parse(file.read_text(encoding="utf-8")))}


# Which argument of a call names the entry that it writes.
ENTRY_ARGUMENT = {
    "record": 1,
    "grant": 2,
    "make_ready": 3,
    "_next_turn": 3,
    "_ready_for_others": 3,
    "_note": 2,
    "tell": 0,
}


def entry_names(module: ast.Module) -> Iterator[str]:
    for function in [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]:
        given: dict[str, list[ast.expr]] = {}
        for node in (*module.body, *ast.walk(function)):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                given.setdefault(node.targets[0].id, []).append(node.value)
        for node in ast.walk(function):
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                at = ENTRY_ARGUMENT.get(called)
                if at is not None and at < len(node.args):
                    yield from texts(node.args[at], given)


def texts(node: ast.expr, given: dict[str, list[ast.expr]]) -> Iterator[str]:
    """The texts that an expression may stand for. A parameter stands for what callers give, which is seen there."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp():
            yield from texts(node.body, given)
            yield from texts(node.orelse, given)
        case ast.JoinedStr(values=[ast.Constant(value="run_"), ast.FormattedValue(value=ast.Name(id="status"))]):
            yield from (f"run_{status}" for status in FINAL)
        case ast.Name():
            for value in given.get(node.id, []):
                yield from texts(value, given)
        case ast.Subscript(value=ast.Name(id=choice)) if choice in given:
            for choices in given[choice]:
                assert isinstance(choices, ast.Dict)
                for value in choices.values:
                    yield from texts(value, given)
        case _:
            raise AssertionError(f"cannot tell which ledger entry {ast.unparse(node)} names; teach this test to")


def test_every_rule_that_a_test_is_about_is_promised_and_every_promise_has_a_test() -> None:
    """By the numbers in names and docstrings of tests. F18 and beyond are failures, which have their own list."""
    pages = [*table(DOCS / "reference/promises.md", "rule"), *table(DOCS / "reference/promises.md", "law")]
    promised = {number for row in pages for number in row[0].split(", ")}
    failures = {f"F{number}" for number in range(18, 100)}
    assert {rule for file in files_of_tests() for rule in rules_of(file)} - failures == promised


def files_of_tests() -> list[Path]:
    """Those that every store is held to among them."""
    return [*(ROOT / "tests").rglob("test_*.py"), *(SOURCE / "testing/store_contract").glob("*.py")]


def rules_of(file: Path) -> Iterator[str]:
    """The numbers of rules and laws that tests of a file name."""
    module = ast.parse(file.read_text(encoding="utf-8"))
    tests = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    told = [node.name.replace("_", " ") for node in tests if node.name.startswith("test_")]
    told += [ast.get_docstring(node) or "" for node in (module, *tests)]
    for text in told:
        yield from re.findall(r"\b[DFGHLMSUW][1-9]\d?\b", text)
        for laws in re.findall(r"\blaws? ?([0-9, ]+)", text):
            yield from re.findall(r"\d+", laws)


async def test_the_list_of_tables_is_what_the_schemas_have(postgres_url: str, sqlite_path: str) -> None:
    written = {row[0] for row in table(DOCS / "reference/stores.md", "table")}
    await migrate(postgres_url)
    connection = await connect(postgres_url)
    found = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    await connection.close()
    assert {name for (name,) in found} == written
    with contextlib.closing(sqlite3.connect(sqlite_path)) as file:
        tables = {str(name) for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables - {"sqlite_sequence"} == written - {"schema_versions"}


def test_every_failure_names_the_tests_that_show_it() -> None:
    """Each number stands once, no test is missing, and where none is named the row says that it is not tested."""
    rows = table(DOCS / "reference/failures.md", "no")
    assert [row[0] for row in rows] == [f"F{number:02}" for number in range(1, 83)]
    shown_by = {row[0]: re.findall(r"\btest_\w+", " ".join(row[3:])) for row in rows}
    assert {name for names in shown_by.values() for name in names} - known_tests() == set()
    assert not [row[0] for row in rows if not shown_by[row[0]] and "not tested" not in row[2]]


def known_tests() -> set[str]:
    return {
        name for file in files_of_tests() for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))
    }


def test_every_public_name_is_in_the_reference() -> None:
    reference = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    assert not [name for name in bide.__all__ if not re.search(rf"\b{name}\b", reference)]


def test_every_method_of_the_client_and_of_a_world_is_in_the_reference() -> None:
    for page, owner in (("client.md", bide.Client), ("testing-kit.md", bide.testing.World)):
        text = (DOCS / "reference" / page).read_text(encoding="utf-8")
        public = [name for name in dir(owner) if callable(getattr(owner, name)) and not name.startswith("_")]
        assert not [name for name in public if not re.search(rf"\b{name}\(", text)], page


def test_every_method_of_a_step_is_in_the_reference() -> None:
    text = (DOCS / "reference" / "workflows.md").read_text(encoding="utf-8")
    public = [name for name in vars(bide.Step) if not name.startswith("_")]
    assert not [name for name in public if not re.search(rf"\b{name}\b", text)]


def test_the_architecture_names_what_is_in_the_source() -> None:
    """Every `file.py`, and every `module.name` or `Class.name`, wherever in the source it has its place."""
    sources = {path: path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    missing = []
    for token in re.findall(r"`([\w/]+\.\w+)`", prose(ROOT / "ARCHITECTURE.md")):
        owner, _, name = token.rpartition(".")
        if name == "py":
            found = any(str(path).endswith(f"/{token}") for path in (*sources, *(ROOT / "tests").rglob("*.py")))
        else:
            places = [text for path, text in sources.items() if path.stem == owner or f"class {owner}" in text]
            found = any(re.search(rf"\b{name}\b", text) for text in places)
        if not found:
            missing.append(token)
    assert not missing


def test_the_table_of_words_is_what_the_language_knows() -> None:
    written = table(DOCS / "reference/machine-files.md", "English")
    assert written == [list(row.values()) for row in TABLE.values()]
