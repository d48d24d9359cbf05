"""The shape of the source itself: imports point one way, the core is pure, and what is public is documented."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import bide

SOURCE = Path(bide.__file__).parent

# From the inside out. A module may import its own layer and every one before it.
LAYERS = (
    "core",
    "errors",
    "stores",
    "engine",
    "authoring",
    "views",
    "client",
    "approving",
    "app",
    "transports",
    "server",
    "testing",
    "cli",
)

# What the core may use of the standard library: nothing of it does I/O, tells the time or rolls dice.
PURE_MODULES = frozenset(
    {
        "__future__", "abc", "base64", "bisect", "collections", "copy", "dataclasses", "datetime", "enum", "fractions",
        "fnmatch", "functools", "hashlib", "hmac", "itertools", "json", "math", "operator", "re", "shlex", "string",
        "types", "typing", "unicodedata", "zoneinfo",
    }
)  # fmt: skip
PURE_PACKAGES = frozenset({"bide", "cel", "jsonschema_rs", "msgspec"})

CLOCKS_AND_DICE = frozenset({"time", "random", "secrets", "uuid"})
IMPURE_MODULES = CLOCKS_AND_DICE | {"asyncio", "io", "logging", "os", "pathlib", "socket", "subprocess", "threading"}
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "__import__"})
PRESENT_MOMENT = frozenset({"now", "utcnow", "today"})


def modules(*parts: str) -> list[Path]:
    root = SOURCE.joinpath(*parts)
    return [root.with_suffix(".py")] if root.with_suffix(".py").is_file() else sorted(root.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> str | None:
    """`bide.core.decide` is of the layer `core`; the package itself and its entry points are of none."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LAYERS else None


def imported(tree: ast.AST, *, for_typing: bool = True) -> Iterator[tuple[int, str]]:
    """Every absolute import, wherever it stands, with its line."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if not for_typing and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            skipped.update(inner for statement in node.body for inner in ast.walk(statement))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            module = node.module or ""
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names if module == "bide")


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def test_imports_point_one_way() -> None:
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        own = layer_of(name_of(path))
        if own is None:
            continue
        for line, module in imported(parsed(path), for_typing=False):
            other = layer_of(module)
            if other is not None and LAYERS.index(other) > LAYERS.index(own):
                wrong.append(f"{name_of(path)}:{line} imports {module}")
    assert wrong == []


def test_every_module_has_a_layer() -> None:
    """A new top-level module must be given its place, or nothing holds its imports to a direction."""
    homeless = {name_of(path).split(".")[1] for path in SOURCE.rglob("*.py") if name_of(path) != "bide"}
    assert homeless - set(LAYERS) - {"__main__"} == set()


def test_the_core_imports_only_itself_msgspec_and_pure_modules() -> None:
    wrong = []
    for path in modules("core"):
        for line, module in imported(parsed(path)):
            top = module.split(".")[0]
            is_own = module.startswith("bide.core") or module == "bide"
            if not (is_own if top == "bide" else top in PURE_MODULES | PURE_PACKAGES):
                wrong.append(f"{name_of(path)}:{line} imports {module}")
    assert wrong == []


def test_the_core_does_no_io_and_asks_no_clock_and_no_dice() -> None:
    wrong = []
    for path in modules("core"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)):
                wrong.append(f"{name_of(path)}:{node.lineno} is async")
        wrong += [f"{name_of(path)}:{line} uses {what}" for line, what in impurities(parsed(path), IMPURE_MODULES)]
    assert wrong == []


@pytest.mark.parametrize("layer", ["engine", "authoring", "views", "client", "app"])
def test_time_randomness_and_ids_come_from_the_ports_alone(layer: str) -> None:
    wrong = [
        f"{name_of(path)}:{line} uses {what}"
        for path in modules(layer)
        if name_of(path) != "bide.engine.ports"
        for line, what in impurities(parsed(path), CLOCKS_AND_DICE)
        if what not in IMPURE_CALLS
    ]
    assert wrong == []


def impurities(tree: ast.Module, forbidden: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Uses of forbidden modules, of calls that reach outside, and of the present moment in any spelling."""
    for line, module in imported(tree):
        if module.split(".")[0] in forbidden:
            yield line, module
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield node.lineno, node.func.id
        if (
            isinstance(node, ast.Attribute)
            and node.attr in PRESENT_MOMENT
            and isinstance(node.value, ast.Name)
            and node.value.id in ("datetime", "date")
        ):
            yield node.lineno, f"{node.value.id}.{node.attr}"


def test_the_walk_finds_what_it_forbids() -> None:
    tree = ast.parse("import time\nfrom os import path\ndef f():\n    return datetime.now(), open('x')\n")
    found = {what for _, what in impurities(tree, IMPURE_MODULES)}
    assert found == {"time", "os", "datetime.now", "open"}


# ---------------------------------------------------------------- the public names


def test_what_bide_lists_is_what_it_has() -> None:
    """`__all__` is sorted out by kind, without doubles, and nothing public hides beside it."""
    assert len(set(bide.__all__)) == len(bide.__all__)
    there = {
        name
        for name, value in vars(bide).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }
    assert there == set(bide.__all__)


@pytest.mark.parametrize("name", bide.__all__)
def test_a_public_name_is_documented_with_an_example(name: str) -> None:
    text = documentation(name)
    assert text, f"bide.{name} has no docstring of its own"
    assert ">>>" in text, f"the docstring of bide.{name} shows no example"


def documentation(name: str) -> str:
    value = getattr(bide, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        return inspect.cleandoc(value.__dict__.get("__doc__") or "" if inspect.isclass(value) else value.__doc__ or "")
    return next((text for path in sorted(SOURCE.rglob("*.py")) if (text := documented_value(path, name))), "")


def documented_value(path: Path, name: str) -> str:
    """The string that stands under the assignment of a value: Python keeps no docstring for it."""
    body = parsed(path).body
    for statement, following in pairwise(body):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and statement.target.id == name
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            return following.value.value
    return ""


# ---------------------------------------------------------------- the examples


def doctested() -> list[str]:
    return [name_of(path) for path in sorted(SOURCE.rglob("*.py")) if ">>>" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("module", doctested())
def test_the_examples_in_the_source_are_true(module: str) -> None:
    importlib.import_module(module)
    results = doctest.testmod(sys.modules[module], optionflags=doctest.ELLIPSIS)
    assert results.failed == 0
    assert results.attempted > 0


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_migrations_are_numbered_without_gaps_or_repeats(store: str) -> None:
    numbers = sorted(path.name[:4] for path in (SOURCE / "stores" / store / "migrations").glob("*.sql"))
    assert numbers == [f"{number:04}" for number in range(1, len(numbers) + 1)]
