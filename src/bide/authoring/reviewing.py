"""A look at the code of Python definitions, without running it: unknown step names, and what blocks (M1, F3)."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, Final

from bide.authoring.language.checking import check_machine
from bide.authoring.language.definition import MachineFile
from bide.authoring.language.source import Problem, in_order, suggestion
from bide.authoring.machine import Machine
from bide.authoring.workflow import Workflow
from bide.engine.definitions import Registry

NAMING: Final = {"Next": (0, ("step",)), "Await": (1, ("then", "on_timeout")), "Spawn": (1, ("then",))}
BLOCKING: Final = {
    "time.sleep": "use `await step.sleep(id, …)`",
    "input": "ask a person with `step.ask(…)` or a signal",
    "open": "read and write files in a step: `await step.run(id, …)`",
    "requests.": "call it in a step: `await step.run(id, …)`",
    "urllib.request.": "call it in a step: `await step.run(id, …)`",
    "httpx.": "call it in a step: `await step.run(id, …)`",
    "subprocess.": "call it in a step: `await step.run(id, …)`",
    "socket.": "use sockets in a step: `await step.run(id, …)`",
    "random.": "use `await step.random()`, which replays the same",
    "uuid.uuid": "use `await step.uuid()`, which replays the same",
    "datetime.now": "use `await step.now()`, which replays the same",
    "datetime.datetime.now": "use `await step.now()`, which replays the same",
    "time.time": "use `await step.now()`, which replays the same",
}
TIMERS: Final = {
    "asyncio.sleep": "it is a durable timer, but edits can shift it; use `await step.sleep(id, …)`",
    "asyncio.timeout": "it is a durable timer, but edits can shift it; give the wait a `timeout=`",
    "asyncio.wait_for": "it is a durable timer, but edits can shift it; give the wait a `timeout=`",
}


def review(registry: Registry) -> list[Problem]:
    """What is wrong, or doubtful, in the code of an app's machines and workflows."""
    found: list[Problem] = []
    files = {each.name: each.machine for each in registry if isinstance(each, MachineFile)}
    for definition in registry:
        if isinstance(definition, Machine):
            found += _machine(definition)
        elif isinstance(definition, MachineFile):
            actions = definition.surroundings.actions
            beside = {name: machine for name, machine in files.items() if name not in actions}
            found += check_machine(definition.machine, {*registry.names(), *actions}, beside)
        elif type(definition) is Workflow and not definition.name.startswith("action "):
            found += _workflow(definition)
    return list(in_order(found))


class _Code:
    """The syntax tree of a function or class, with the places of its file."""

    def __init__(self, thing: Any) -> None:
        lines, self.first = inspect.getsourcelines(thing)
        self.file = inspect.getsourcefile(thing) or "?"
        self._lines = lines
        source = textwrap.dedent("".join(lines))
        self.indent = len(lines[0]) - len(source.splitlines(keepends=True)[0])
        self.tree = ast.parse(source)

    def problem(self, node: ast.expr | ast.stmt, message: str, severity: Any = "error") -> Problem:
        text = self._lines[node.lineno - 1].rstrip("\n")
        end = node.end_col_offset if node.end_lineno == node.lineno else None
        length = end - node.col_offset if end is not None else len(text) - node.col_offset
        line, column = self.first + node.lineno - 1, node.col_offset + self.indent + 1
        return Problem(self.file, line, column, max(1, length), message, text, severity)


def _code_of(thing: Any) -> _Code | None:
    """None where the source cannot be had: then there is nothing to say."""
    try:
        return _Code(thing)
    except (OSError, TypeError, SyntaxError, IndentationError):
        return None


def _machine(machine: Machine) -> Iterator[Problem]:
    code = _code_of(machine.cls)
    steps = set(machine.steps)
    for node in ast.walk(code.tree) if code is not None else ():
        if not isinstance(node, ast.Call) or _name(node.func).rpartition(".")[2] not in NAMING:
            continue
        at, keywords = NAMING[_name(node.func).rpartition(".")[2]]
        named = [node.args[at]] if len(node.args) > at else []
        named += [keyword.value for keyword in node.keywords if keyword.arg in keywords]
        for value in named:
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value not in steps:
                assert code is not None
                hint = suggestion(value.value, steps)
                yield code.problem(value, f"machine {machine.name!r} has no step {value.value!r}{hint}")


def _workflow(workflow: Workflow[Any, Any]) -> Iterator[Problem]:
    fn: Callable[..., Any] = inspect.unwrap(workflow.fn)
    code = _code_of(fn)
    if code is None:
        return
    for node in _body_calls(code.tree):
        name = _name(node.func)
        if name in TIMERS and not _is_yield(name, node):
            yield code.problem(node, f"`{name}` in the body of workflow {workflow.name!r}: {TIMERS[name]}", "warning")
        for prefix, advice in BLOCKING.items():
            if name == prefix or (prefix.endswith((".", "uuid")) and name.startswith(prefix)):
                yield code.problem(
                    node, f"`{name}` in the body of workflow {workflow.name!r} is done again at every replay; {advice}"
                )
                break


def _is_yield(name: str, node: ast.Call) -> bool:
    """`asyncio.sleep(0)` only lets others run."""
    return (
        name == "asyncio.sleep"
        and bool(node.args)
        and isinstance(node.args[0], ast.Constant)
        and not node.args[0].value
    )


def _body_calls(tree: ast.Module) -> Iterator[ast.Call]:
    """Calls that the body itself makes: not those of functions inside of it, which steps may run."""
    pending: list[ast.AST] = [node for statement in tree.body for node in getattr(statement, "body", [])]
    while pending:
        node = pending.pop(0)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Call):
            yield node
        pending += ast.iter_child_nodes(node)


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            owner = _name(value)
            return f"{owner}.{attribute}" if owner else ""
        case _:
            return ""
