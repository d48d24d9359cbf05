"""The Python of a page as a module that type checkers can read."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from pathlib import Path

FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# As strict as for anybody's code, but for what comes of making one module of many: blocks import and define what others
# have imported and defined, and what is a name of the page becomes a variable of a function.
PATCHWORK = "# pyright: strict, reportDuplicateImport=false, reportRedeclaration=false, reportUnusedVariable=false"


def module_of(page: Path) -> str:
    """All blocks of a page in one. What awaits becomes the body of a function, one line below its place."""
    text = page.read_text(encoding="utf-8")
    lines = [PATCHWORK, "from __future__ import annotations"]
    for no, match in enumerate(FENCE.finditer(text)):
        fence = text.count("\n", 0, match.start())
        lines += [""] * (fence + 1 - len(lines))
        lines += _with_functions(match[1], f"block_{no}")
    return "\n".join(lines) + "\n"


def _with_functions(block: str, name: str) -> list[str]:
    """The lines of a block, in an async function from the first statement on that awaits: one line more."""
    lines = block.splitlines()
    for statement in ast.parse(block).body:
        if _awaits(statement):
            at = statement.lineno - 1
            inside = textwrap.indent("\n".join(lines[at:]), "    ").splitlines()
            return [*lines[:at], f"async def {name}() -> None:", *inside]
    return lines


def _awaits(statement: ast.stmt) -> bool:
    module = ast.Module([statement], [])
    code = compile(module, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return bool(code.co_flags & inspect.CO_COROUTINE)
