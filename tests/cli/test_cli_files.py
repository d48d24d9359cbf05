"""`check`, `format`, `translate`, `graph`, `new`, and machine files wherever an app can be named."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree
from pathlib import Path

import pytest

from bide.cli import run
from bide.cli.templates import PROGRAMS, TEMPLATES

EXAMPLES = Path(__file__).parents[2] / "examples"
GOOD = "machine m\n    implements\n        compute a\n            1\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("BIDE_APP", "BIDE_STORE"):
        monkeypatch.delenv(name, raising=False)


def test_check_says_nothing_of_good_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(EXAMPLES)]) == 0
    assert "nothing to say" in capsys.readouterr().out


def test_check_shows_every_problem_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """L6."""
    Path("a.machine").write_text(GOOD.replace("1", "input.x +"))
    Path("b.machine").write_text(GOOD.replace("compute", "comput"))
    assert run(["check", "."]) == 1
    said = capsys.readouterr().out
    assert "a.machine:4:22: a value was expected, but the line ends here\n    4 |             input.x +\n" in said
    assert "b.machine:3:9: `comput` means nothing here" in said
    assert "did you mean `compute`?" in said


def test_check_gives_json(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.machine").write_text("machine m\n  implements\n    wait for x\n")
    assert run(["check", "a.machine", "--json"]) == 1
    [problem] = json.loads(capsys.readouterr().out)
    assert problem == {
        "file": "a.machine",
        "line": 3,
        "column": 14,
        "severity": "warning",
        "message": "`x` has no timeout: it may wait for ever; give a time, or `forever` to say so",
    }


def test_check_looks_up_actions_in_an_app(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.machine").write_text('machine m\n  implements\n    action a call\n      machine: "sned"\n')
    Path("shopfiles.py").write_text("import bide\napp = bide.App()\n@app.action('send')\ndef send(): ...\n")
    assert run(["check", "a.machine"]) == 0
    assert run(["check", "a.machine", "--app", "shopfiles.py"]) == 1
    assert "did you mean `send`?" in capsys.readouterr().out


APP = """\
import asyncio
import random
import time

import bide

app = bide.App()


@app.machine("order")
class Order:
    @bide.start
    def begin(self, ctx):
        return bide.Await("paid", then="shipp", timeout="1h", on_timeout="begin")

    def ship(self, ctx):
        return bide.Next("begin")


@app.workflow("flow")
async def flow(step):
    def inside():
        time.sleep(1)

    await step.run("fine", inside)
    await asyncio.sleep(0)
    time.sleep(5)
    await asyncio.sleep(5)
    return random.random()
"""


def test_check_looks_at_the_code_of_an_app(capsys: pytest.CaptureFixture[str]) -> None:
    """M1: literal step names; F3: what blocks, and timers that edits can shift."""
    Path("reviewed.py").write_text(APP)
    assert run(["check", "reviewed.py"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if "reviewed.py:" in line]
    said = [line.partition("reviewed.py:")[2] for line in lines]
    assert [one.partition(": ")[0] for one in said] == ["14:40", "27:5", "28:11", "29:12"]
    assert "machine 'order' has no step 'shipp'; did you mean `ship`?" in said[0]
    assert "use `await step.sleep(id, …)`" in said[1]
    assert "warning: `asyncio.sleep`" in said[2]
    assert "use `await step.random()`" in said[3]


def test_format_changes_files_and_can_only_look(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.machine").write_text("machine   m\n implements\n  compute a\n   1")
    assert run(["format", "--check", "."]) == 1
    assert "would change a.machine" in capsys.readouterr().out
    assert run(["format", "a.machine"]) == 0
    assert Path("a.machine").read_text() == GOOD
    assert run(["format", "--check", "a.machine"]) == 0


def test_translate_prints_or_replaces(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """L5."""
    original = (EXAMPLES / "payment.machine").read_bytes().replace(b"\n", b"\r\n")
    Path("p.machine").write_bytes(original)
    assert run(["translate", "p.machine", "--to", "ko"]) == 0
    printed = capfdbinary.readouterr().out
    assert "기다리다 wait_for_payment".encode() in printed
    assert Path("p.machine").read_bytes() == original
    assert run(["translate", "p.machine", "--to", "ko", "--write"]) == 0
    assert Path("p.machine").read_bytes() == printed
    assert run(["translate", "p.machine", "--to", "en", "--write"]) == 0
    assert Path("p.machine").read_bytes() == original


def test_translate_refuses_what_it_cannot_do(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.machine").write_text("machin m\n")
    assert run(["translate", "a.machine", "--to", "xx"]) == 2
    assert run(["translate", "none.machine", "--to", "es"]) == 2
    assert run(["translate", "a.machine", "--to", "es"]) == 1
    assert "a.machine:1:1: `machin` means nothing here; did you mean `machine`?" in capsys.readouterr().err


def test_graph_draws_mermaid_and_svg(capfd: pytest.CaptureFixture[str]) -> None:
    file = str(EXAMPLES / "content_review.machine")
    assert run(["graph", file]) == 0
    drawn = capfd.readouterr().out
    assert drawn.startswith("flowchart TD\n")
    assert 'n5(["wait for human_review<br/>a person"])' in drawn
    assert 'n5 -.->|"after 72h"| n7' in drawn
    assert run(["graph", file, "-o", "g.svg"]) == 0
    picture = xml.etree.ElementTree.parse("g.svg").getroot()
    assert picture.tag.endswith("svg")
    assert "wait for human_review" in "".join(picture.itertext())


SEVERAL = """\
machine order
    implements
        action stock call
            machine: "stock"
        ask again from order
        run flow(late)
    flows
        flow late
            launch mail
                machine: "notify"
"""
OTHERS = """\
machine stock
    implements
        compute result
            1
machine notify
    implements
        action nobody call
            machine: "elsewhere"
"""


@pytest.mark.parametrize("is_folder", [False, True])
def test_graph_draws_all_machines_and_who_calls_whom(is_folder: bool, capfd: pytest.CaptureFixture[str]) -> None:
    Path("shop").mkdir()
    if is_folder:
        Path("shop/a.machine").write_text(SEVERAL)
        Path("shop/b.machine").write_text(OTHERS)
    else:
        Path("shop.machine").write_text(SEVERAL + OTHERS)
    place = "shop" if is_folder else "shop.machine"
    assert run(["graph", place]) == 0
    drawn = capfd.readouterr().out
    assert drawn.count("flowchart TD") == 1
    assert all(f'["machine {name}"]' in drawn for name in ("order", "stock", "notify"))
    nodes = {label: id for id, label in re.findall(r'(n\d+)\S*"(.*?)"', drawn)}
    calls = set(re.findall(r'(n\d+) [=.>-]+\|"(calls|launches)"\| (n\d+)', drawn))
    assert calls == {
        (nodes["call stock<br/>&quot;stock&quot;"], "calls", nodes["stock"]),
        (nodes["call again<br/>order"], "calls", nodes["order"]),
        (nodes["launch mail<br/>&quot;notify&quot;"], "launches", nodes["notify"]),
    }
    assert run(["graph", place, "-o", "g.svg"]) == 0
    texts = ["".join(text.itertext()) for text in xml.etree.ElementTree.parse("g.svg").getroot().iter() if text.text]
    assert {"machine order", "machine stock", "machine notify", "calls", "launches", "flow late"} <= set(texts)
    assert run(["graph", place, "--machine", "stock"]) == 0
    assert "order" not in capfd.readouterr().out
    assert run(["graph", place, "--machine", "nobody"]) == 2
    assert "has no machine 'nobody'; it has order, stock, notify" in capfd.readouterr().err


@pytest.mark.parametrize("verb", [["graph"], ["format"], ["translate", "--to", "es"]], ids=" ".join)
def test_a_program_is_no_machine_file(capsys: pytest.CaptureFixture[str], verb: list[str]) -> None:
    Path("shop.py").write_text("import bide\n")
    assert run([*verb, "shop.py"]) == 2
    assert "machine files" in capsys.readouterr().err


def test_every_template_is_good(capsys: pytest.CaptureFixture[str]) -> None:
    for template in TEMPLATES:
        assert run(["new", f"x_{template}", "--template", template, "--language", "de"]) == 0
        assert run(["check", f"x_{template}.machine"]) == 0
        assert run(["format", "--check", f"x_{template}.machine"]) == 0
    for template in PROGRAMS:
        assert run(["new", f"y_{template}", "--template", template]) == 0
        assert run(["check", f"y_{template}.py"]) == 0
    assert run(["new", "x_machine"]) == 2
    assert "there is a file" in capsys.readouterr().err
    assert run(["new", "other", "--template", "nothing"]) == 2
    assert run(["new", "not a name"]) == 2


def test_a_machine_file_can_be_started_as_an_app(capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.machine").write_text(GOOD)
    assert run(["start", "m", "--app", "m.machine", "--store", "sqlite:///m.db"]) == 0
    assert capsys.readouterr().out.startswith("run_")
    assert run(["runs", "--app", ".", "--store", "sqlite:///m.db", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"][0]["definition"] == "m"


def test_a_broken_machine_file_as_an_app_is_shown_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.machine").write_text("machine m\n  implements\n    compute\n")
    assert run(["start", "m", "--app", "m.machine"]) == 1
    assert "m.machine:3:12: a name for this `compute` was expected" in capsys.readouterr().err
