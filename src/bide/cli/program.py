"""The program: every verb under its name, in the groups that `bide --help` shows."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from bide.cli import (
    access,
    archives,
    changing,
    doctor,
    files,
    ledgers,
    looking,
    policies,
    serving,
    tasks,
    upkeep,
    worker,
)
from bide.cli.options import spread
from bide.cli.usage import StoreCommand

# Typer brings Click, but not always under the same module name; its own export leads to the right class.
BadUsage: type[Exception] = typer.BadParameter.__bases__[0]

GROUPS: dict[str, tuple[Any, ...]] = {
    "Start and change runs": (
        changing.start,
        changing.signal,
        changing.complete,
        changing.emit,
        tasks.answer,
        changing.cancel,
        changing.retry,
    ),
    "Look at runs": (looking.runs, looking.show, looking.explain, "waits", looking.unused, "ledger"),
    "Write machine files": (files.new, files.check, files.format, files.translate, files.graph),
    "Operate": (
        serving.dev,
        serving.serve,
        worker.worker,
        "dead-letters",
        "keys",
        "workspaces",
        "policy",
        upkeep.migrate,
        upkeep.audit,
        doctor.doctor,
    ),
}

GROUPED: dict[str, tuple[str, dict[str, Callable[..., int]]]] = {
    "ledger": (
        "Print, verify, export or import what happened to a run.",
        {"show": ledgers.show, "verify": ledgers.verify, "export": archives.export, "import": archives.import_},
    ),
    "waits": (
        "List what runs wait for; move, fail, cancel, assign or answer it.",
        {
            "move": tasks.move,
            "fail": tasks.fail,
            "cancel": tasks.cancel,
            "assign": tasks.assign,
            "answer": tasks.answer_many,
        },
    ),
    "dead-letters": (
        "List, retry or discard what bide stopped retrying.",
        {"retry": tasks.retry, "discard": tasks.discard},
    ),
    "keys": (
        "Make, list and revoke the keys of a workspace.",
        {"create": access.create_key, "list": access.list_keys, "revoke": access.revoke_key},
    ),
    "policy": ("Try the app's policies against what has happened.", {"test": policies.try_out}),
    "workspaces": (
        "Make and list workspaces.",
        {"create": access.create_workspace, "list": access.list_workspaces},
    ),
}

# What a group does without a verb of its own; the others print their help.
ALONE: dict[str, Callable[..., int]] = {"waits": looking.waits, "dead-letters": tasks.dead_letters}


class Verbs(TyperGroup):
    """Lists the verbs by what they are for."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, verbs in GROUPS.items():
            names = [verb if isinstance(verb, str) else verb.__name__ for verb in verbs]
            commands = {name: self.get_command(ctx, name) for name in names}
            with formatter.section(title):
                rows = [(name, command.get_short_help_str(70)) for name, command in commands.items() if command]
                formatter.write_dl(rows, col_spacing=4)


def program(first: str | None = None) -> typer.Typer:
    """The verbs, or only the one that the *first* argument names: to make them all takes longer than most of them."""
    verbs = {verb if isinstance(verb, str) else verb.__name__: verb for verbs in GROUPS.values() for verb in verbs}
    if first in verbs:
        verbs = {first: verbs[first]}
    program = typer.Typer(
        name="bide",
        cls=Verbs,
        help="Durable workflows whose heart is waiting for the outside world.",
        epilog="Each verb explains itself: bide VERB --help. Exit codes: 0 done, 1 refused, 2 usage.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    program.callback(invoke_without_command=True)(_alone)
    for name, verb in verbs.items():
        if isinstance(verb, str):
            program.add_typer(_group(name), name=name)
        else:
            program.command(cls=_kind(verb))(spread(verb))
    return program


def _group(name: str) -> typer.Typer:
    about, verbs = GROUPED[name]
    group = typer.Typer(rich_markup_mode=None, help=about)
    group.callback(invoke_without_command=True)(spread(ALONE[name]) if name in ALONE else _help)
    for verb_name, verb in verbs.items():
        group.command(verb_name, cls=_kind(verb))(spread(verb))
    return group


def _kind(verb: Callable[..., int]) -> type[TyperCommand] | None:
    if verb is changing.start:
        return changing.StartCommand
    takes_url = "url" in inspect.signature(spread(verb)).parameters
    return None if takes_url or verb.__module__ == files.__name__ else StoreCommand


def _alone(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from bide import __version__

        print(f"bide {__version__}")
        raise typer.Exit
    _help(context)


def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def usage_message(error: Exception) -> str:
    """What was wrong with the command line, in one line that ends with where to read on."""
    said = str(error.format_message()) if hasattr(error, "format_message") else str(error)
    said = " ".join(said.split()).rstrip(".")
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "bide"
    group = GROUPED.get(path.rpartition(" ")[2])
    if said.startswith("No such command") and group is not None:
        said += f"; there are {', '.join(group[1])}"
    return f"{said[:1].lower()}{said[1:].replace('. Did', '; did')}; see `{path} --help`"
