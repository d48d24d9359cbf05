"""The program as a whole: help, apps, exit codes, terminals and pipes."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from bide.cli.program import GROUPS, program
from tests.cli.conftest import Answer, Bide

VERBS = (
    "start", "signal", "cancel", "retry", "runs", "show", "explain", "waits", "unused", "ledger", "worker", "migrate",
    "audit", "doctor",
)  # fmt: skip


def _name(verb: Any) -> str:
    return verb if isinstance(verb, str) else str(verb.__name__)


def test_help_names_every_verb(bide: Bide) -> None:
    for arguments in ([], ["--help"], ["-h"]):
        answer = bide(*arguments)
        assert answer.code == 0
        assert all(re.search(rf"^  {verb} ", answer.out, re.MULTILINE) for verb in VERBS)
        assert "..." not in answer.out.replace("[ARGS]...", ""), "what a verb does is said in full"


@pytest.mark.parametrize(
    "verb", [[verb] for verb in VERBS if verb != "ledger"] + [["ledger", "show"], ["ledger", "verify"]]
)
def test_every_verb_takes_app_store_workspace_and_json(bide: Bide, verb: list[str]) -> None:
    said = bide(*verb, "--help").out
    assert all(option in said for option in ("--app", "--store", "--workspace", "--json"))


@pytest.mark.parametrize("verb", [name for names in GROUPS.values() for name in map(_name, names)])
def test_a_verb_made_alone_is_the_one_among_all(verb: str) -> None:
    """`bide VERB` makes that verb alone, because to make them all takes time."""
    alone, among = (typer.main.get_command(made) for made in (program(verb), program()))

    assert list(alone.commands) == [verb]  # type: ignore[attr-defined]  # the program is a group
    assert described(alone, verb) == described(among, verb)


def described(made: Any, verb: str) -> Any:
    context = typer.Context(made, info_name="bide")
    command = made.commands[verb]
    below = getattr(command, "commands", {})
    helps = [typer.Context(one, parent=context, info_name=verb).get_help() for one in (command, *below.values())]
    return helps, type(command), list(below)


def test_help_loads_no_database_driver(bide: Bide) -> None:
    code = (
        "import sys; from bide.cli import run; run(['--help']); run(['start', '--help']);"
        "print([m for m in ('apsw', 'asyncpg', 'rich') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_the_version_is_printed(bide: Bide) -> None:
    from bide import __version__

    assert bide("--version").out == f"bide {__version__}\n"


def test_an_unknown_verb_is_usage(bide: Bide) -> None:
    answer = bide("strat")
    assert answer.code == 2
    assert answer.err.startswith("error: no such command 'strat'")
    assert bide("strat", "--json").error["code"] == "usage"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["strat"], "no such command 'strat'; did you mean 'start'?; see `bide --help`"),
        (
            ["ledger", "run_1"],
            "no such command 'run_1'; there are show, verify, export, import; see `bide ledger --help`",
        ),
        (["start", "echo", "Ann"], """quote it for the shell, as in '"Ann"'"""),
    ],
    ids=str,
)
def test_a_mistake_is_answered_with_what_was_meant(bide: Bide, words: list[str], said: str) -> None:
    answer = bide(*words)
    assert answer.code == 2
    assert said in answer.err


def test_python_m_bide_and_bide_are_the_same_program(bide: Bide) -> None:
    script = Path(sys.executable).with_name("bide")
    calls = [[sys.executable, "-m", "bide"], [str(script)]]
    for call in calls:
        done = subprocess.run([*call, "start", "nothing"], cwd=bide.folder, capture_output=True, text=True)
        assert done.returncode == 1
        assert done.stderr.startswith("error: no definition is called 'nothing'")


# ---------------------------------------------------------------- apps


@pytest.mark.parametrize("name", ["shop:app", "shop", "shop.py", "shop.py:app", "./shop.py"])
def test_an_app_can_be_named_by_module_or_file(bide: Bide, name: str) -> None:
    assert bide("start", "echo", "--app", name).code == 0


def test_a_file_in_a_package_is_imported_as_part_of_it(bide: Bide) -> None:
    Path("store/front").mkdir(parents=True)
    Path("store/__init__.py").touch()
    Path("store/front/__init__.py").touch()
    Path("store/front/desk.py").write_text(
        "from store import front\nfrom shop import app\nassert __package__ == 'store.front'\n"
    )
    assert bide("start", "echo", "--app", "store/front/desk.py").code == 0
    assert bide("start", "echo", "--app", "store.front.desk:app").code == 0


def test_a_file_named_like_a_package_is_taken_all_the_same(bide: Bide) -> None:
    Path("json.py").write_text(Path("shop.py").read_text())
    assert bide("start", "echo", "--app", "json.py").code == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere:app", "there is no module 'nowhere' in "),
        ("nowhere.py", "there is no file 'nowhere.py'"),
        ("shop:nothing", "shop has no 'nothing'; it has shop:app"),
        ("shop:Order", "shop:Order is a type, not a bide.App; it has shop:app"),
        ("empty", "empty has no bide.App; write app = bide.App(...) in it"),
        ("several", "several has several apps; name one: several:a, several:b"),
        ("lacking", "lacking could not be imported: ModuleNotFoundError: No module named 'not_there'"),
        ("typo", "typo could not be imported: NameError: name 'bied' is not defined ("),
        ("syntax", "syntax could not be imported: SyntaxError"),
        ("twice", "twice could not be imported: BadDefinition: 'a' version '1' is registered already"),
        ("shop-app", "'shop-app' is no name of a module"),
    ],
)
def test_an_app_that_cannot_be_found_is_usage_and_says_why(bide: Bide, name: str, said: str) -> None:
    Path("empty.py").touch()
    Path("several.py").write_text("import bide\na = bide.App()\nb = bide.App()\n")
    Path("lacking.py").write_text("import not_there\n")
    Path("typo.py").write_text("app = bied.App()\n")
    Path("syntax.py").write_text("app = = 1\n")
    machine = "@app.machine('a')\nclass A:\n    def go(self, ctx): ...\n"
    Path("twice.py").write_text(f"import bide\napp = bide.App()\n{machine}{machine}")
    answer = bide("runs", "--app", name)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {said}")
    assert bide("runs", "--app", name, "--json").error["code"] == "app_not_found"


# ---------------------------------------------------------------- terminals and pipes


def on_terminal(bide: Bide, *arguments: str, columns: int = 80) -> Answer:
    """The program on a terminal of this width."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "bide", *arguments]
    process = subprocess.Popen(command, cwd=bide.folder, env=environment, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        said += part
    os.close(ours)
    assert process.stderr is not None
    errors = process.stderr.read().decode()
    process.stderr.close()
    return Answer(process.wait(), said.decode().replace("\r\n", "\n"), errors)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_a_terminal_gets_colours_and_lines_that_fit(bide: Bide) -> None:
    run_id = bide.start("order", "--correlation-key", "a-very-long-correlation-key-that-does-not-fit")
    answer = on_terminal(bide, "runs")
    assert "\x1b[33mwaiting" in answer.out
    assert run_id in answer.out
    assert all(len(line) <= 80 for line in plain(answer.out).splitlines())
    assert "…" in answer.out
    assert "\x1b" not in bide("runs").out


def test_what_a_run_is_stands_out_from_what_it_is_called(bide: Bide) -> None:
    """The names of facts are dim, and the facts are not."""
    run_id = bide.start("order", "--correlation-key", "order:1")
    lines = on_terminal(bide, "show", run_id).out.splitlines()
    [key] = [line for line in lines if "order:1" in line]
    assert re.fullmatch(r"\x1b\[2mkey +\x1b\[0morder:1", key)
    [status] = [line for line in lines if "status" in line and "since" not in line]
    assert status.endswith("\x1b[33mwaiting\x1b[0m")


@pytest.mark.parametrize("verb", [["show"], ["explain"], ["ledger", "show"]])
def test_what_is_shown_of_a_run_fits_into_80_columns(bide: Bide, verb: list[str]) -> None:
    run_id = bide.start("order", "--correlation-key", "order:1")
    bide("signal", run_id, "other", f'"{"long " * 40}"')
    answer = on_terminal(bide, *verb, run_id)
    assert answer.code == 0
    assert all(len(line) <= 80 for line in plain(answer.out).splitlines())


def test_a_command_to_copy_stands_whole_on_a_line_of_its_own(bide: Bide) -> None:
    run_id = bide.start("order")
    lines = plain(on_terminal(bide, "explain", run_id, columns=60).out).splitlines()
    assert f"  bide signal {run_id} paid '{{}}'" in lines


def test_a_reader_that_goes_away_is_no_error(bide: Bide) -> None:
    bide.start("echo")
    ours, theirs = os.pipe()
    os.close(ours)
    command = [sys.executable, "-m", "bide", "runs"]
    done = subprocess.run(command, cwd=bide.folder, stdout=theirs, stderr=subprocess.PIPE, text=True)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_progress_of_items_is_a_bar_on_a_terminal(bide: Bide) -> None:
    run_id = bide.start("reviews", '["a", "b", "c", "d"]')
    assert bide("answer", f"{run_id.replace('run_', 'int_')}_1_0", "true").code == 0
    bide.work_off()
    lines = plain(on_terminal(bide, "show", run_id).out).splitlines()
    [at] = [at for at, line in enumerate(lines) if line.startswith("items")]
    assert lines[at] == "items  " + "\u2501" * 10 + "\u2500" * 30 + "  25 %"
    assert lines[at + 1].strip() == "4 expected, 4 dispatched, 1 answered, 1 done, 0 rejected"
