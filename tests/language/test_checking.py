"""What is said of a wrong file: the place, what was expected, the line, and a suggestion (L6)."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bide
from bide.authoring.language import words
from bide.authoring.language.checking import check_text
from bide.authoring.language.parser import parse, read
from bide.authoring.language.translating import translate
from bide.errors import LanguageError
from bide.testing import world
from tests.support.machine_files import MADE, machine_files

MISTAKES = Path(__file__).parent / "mistakes"
GOOD = (MISTAKES / "order.machine").read_text(encoding="utf-8")
RICH = (MISTAKES / "screening.machine").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Mistake:
    """A wrong file, and exactly what is said of it."""

    text: str
    said: str

    def __str__(self) -> str:
        return f"{self.said.partition(': ')[0]} {self.said.partition(': ')[2][:40]}"


def mistakes(name: str, good: str = "") -> list[Mistake]:
    """Each case of a file: `!` a language to translate the good file to, `-` a piece of it, `+` what stands there
    instead (or a whole file, where there is no piece), `=` the one message."""
    found = []
    for case in (MISTAKES / name).read_text(encoding="utf-8").rstrip("\n").split("\n\n"):
        said = {line[0]: line[2:].replace("\\n", "\n").replace("\\t", "\t") for line in case.split("\n")}
        text = translate(good, said["!"]) if "!" in said else good
        assert said.get("-", "") in text, case
        found.append(Mistake(text.replace(said["-"], said["+"], 1) if "-" in said else said["+"], said["="]))
    return found


ALL = [
    *mistakes("order.txt", GOOD),
    *mistakes("screening.txt", RICH),
    *mistakes("languages.txt", GOOD),
    *mistakes("files.txt"),
]


def test_there_are_hundreds_of_mistakes() -> None:
    """L6: each of them different."""
    assert len({mistake.text for mistake in ALL}) == len(ALL) > 300


@pytest.mark.parametrize("text", [GOOD, RICH], ids=["order", "screening"])
def test_the_good_files_are_good(text: str) -> None:
    assert check_text(text) == []


@pytest.mark.parametrize("mistake", ALL, ids=str)
def test_one_mistake_gives_one_message_at_its_place(mistake: Mistake) -> None:
    """L6."""
    found = [problem for problem in check_text(mistake.text) if problem.severity == "error"]
    assert [f"{one.line}:{one.column}: {one.message}" for one in found] == [mistake.said]


SIGNS = [at for at, letter in enumerate(GOOD) if letter in '"{}()[]:']


@pytest.mark.parametrize("at", SIGNS)
def test_a_sign_that_is_missing_or_there_twice_is_found_on_its_line(at: int) -> None:
    """L6: each quote, bracket and colon of the file taken out, and doubled."""
    line = GOOD.count("\n", 0, at) + 1
    for broken in (GOOD[:at] + GOOD[at + 1 :], GOOD[:at] + GOOD[at] + GOOD[at:]):
        found = [problem for problem in check_text(broken) if problem.severity == "error"]
        assert found, broken.splitlines()[line - 1]
        assert found[0].line == line, str(found[0])


def test_a_problem_is_shown_with_its_line_and_a_mark() -> None:
    """L6."""
    broken = GOOD.replace("steps.paid.status", "steps.paid.stats")
    [problem] = check_text(broken, "order.machine")
    assert str(problem) == textwrap.dedent(
        """\
        order.machine:25:33: `paid` gives no `stats`; did you mean `status`?
           25 |             {status: steps.paid.stats}
              |                                 ^^^^^"""
    )


def test_the_mark_stands_right_under_wide_letters() -> None:
    broken = translate(GOOD, "ja").replace("status: ステップ.paid.status", "status: ステップ.paid.stats")
    [problem] = check_text(broken, "order.machine")
    _, line, mark = str(problem).split("\n")
    assert line.endswith("{status: ステップ.paid.stats}")
    assert mark.index("^") == line.index("stats") + 4, "four letters before it are twice as wide"


def test_all_problems_are_found_in_one_run() -> None:
    """L6."""
    broken = (
        GOOD.replace("input.id,", "input.idd,")
        .replace("steps.paid.status", "steps.paid.stats")
        .replace("item *", "itm *")
    )
    assert [problem.line for problem in check_text(broken)] == [11, 25, 33]
    broken = (
        GOOD.replace("as text, is", "as txt, is", 1).replace("wait for paid", "wait paid").replace("otherwise", "x")
    )
    assert [problem.line for problem in check_text(broken)] == [3, 12, 21]


def test_indentation_that_fits_no_block_is_found() -> None:
    broken = GOOD.replace("        flow cancel\n", "       flow cancel\n")
    [problem] = check_text(broken)
    assert problem.line == 30, "the first line that fits neither the block above nor any around it"
    assert problem.message == (
        "this line fits no block: it begins at column 9, the block above it (from line 28) at column 13, "
        "and the one around that at column 8"
    )


def test_a_step_that_is_read_before_it_ran_is_found() -> None:
    """L6."""
    broken = GOOD.replace("{id: input.id,", "{id: steps.paid.status,")
    [problem] = check_text(broken)
    assert (problem.line, problem.message) == (11, "`paid` is read before it has run")


def test_a_wait_without_a_timeout_is_doubtful_and_still_loads() -> None:
    """L6: `bide check` finds it; W1: there is no maximum."""
    text = "machine m\n  implements\n    wait for x\n"
    [problem] = check_text(text)
    assert (problem.severity, problem.line) == ("warning", 3)
    assert check_text("machine m\n  implements\n    wait for x\n      timeout: forever\n") == []


def test_a_flow_that_nobody_runs_is_doubtful() -> None:
    text = "machine m\n  implements\n    compute a\n      1\n  flows\n    flow f\n      compute b\n        2\n"
    [problem] = check_text(text)
    assert (problem.severity, problem.message) == ("warning", "flow `f` is never run")


def test_names_of_machines_and_actions_are_looked_up_where_they_are_known() -> None:
    text = 'machine m\n  implements\n    action a call\n      machine: "@shop/mial"\n'
    assert check_text(text) == []
    [problem] = check_text(text, known=["@shop/mail"])
    assert problem.message == 'no machine and no action is called "@shop/mial"; did you mean `@shop/mail`?'


# ---------------------------------------------------------------- bad input of every kind


@MADE
@given(st.text(max_size=300))
def test_whatever_the_text_is_the_answer_is_a_file_or_problems(text: str) -> None:
    file, problems = read(text)
    assert problems or file is not None
    for problem in problems:
        assert 1 <= problem.line <= text.count("\n") + 1
        assert str(problem)


@MADE
@given(machine_files(), st.data())
def test_a_file_with_something_cut_out_or_put_in_never_breaks_the_parser(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(at, min(len(text), at + 20)))
    put = data.draw(
        st.sampled_from(["", "{", "}", '"', "${", "`", "\n", "  ", "\t", "wait for", "//", "\x00", "待つ ", ":"])
    )
    check_text(text[:at] + put + text[end:])


COMPUTES = "machine m\n implements\n  compute a\n   "
HOSTILE = {
    "nothing": "",
    "empty lines": "\n\n",
    "a byte order mark": "\ufeff",
    "round brackets": "(" * 1000,
    "square brackets": "[" * 100_000,
    "far to the right": "machine m\n" + "  " * 200 + "x\n",
    "texts in texts": COMPUTES + '"${' * 500,
    "a long name": "a" * 1_000_001,
    "minus": COMPUTES + "-" * 5000,
    "a long sum": COMPUTES + "1+" * 5000 + "1\n",
    "a long path": COMPUTES + "input" + ".a" * 5000 + "\n",
    "ever deeper": "machine m\n" + "".join(" " * depth + "implements\n" for depth in range(1, 300)),
    "a huge number": COMPUTES + "9" * 5000 + "\n",
    "control letters": "machine m\x00\x1b\n",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_text_is_refused_in_words(text: str) -> None:
    with pytest.raises(LanguageError):
        parse(text)


def test_blocks_in_blocks_have_an_end() -> None:
    lines = ["machine m", " implements"]
    for depth in range(60):
        lines += [" " * (2 + depth * 2) + "decide d", " " * (3 + depth * 2) + "when true"]
    with pytest.raises(LanguageError, match="nested more than"):
        parse("\n".join(lines))


@pytest.mark.parametrize("language", words.LANGUAGES[1:])
def test_messages_speak_of_keywords_in_the_language_of_the_file(language: str) -> None:
    broken = translate(GOOD, language).replace(words.TABLE["wait for"][language] + " paid", "zzz paid")
    [problem, *_] = check_text(broken)
    assert f"`{words.TABLE['wait for'][language]}`" in problem.message


def test_types_are_named_in_the_language_of_the_file() -> None:
    broken = translate(GOOD.replace("item * 2", "not input.id"), "de")
    [problem] = check_text(broken)
    assert problem.message == "`nicht` takes Wahrheitswert, but this is Text"


HANDLED = {
    "for each": """machine handled
  implements
    for each x in [1, 0]
      compute y
        1 / x
      on failure
        compute z
          "bad"
    compute result
      [steps.y, steps.z]
""",
    "decide": """machine handled
  implements
    decide way
      when true
        compute y
          1 / 0
        on failure
          compute z
            "bad"
    compute result
      [steps.way, steps.z]
""",
}


@pytest.mark.parametrize("block", HANDLED)
async def test_L6_a_step_under_on_failure_of_a_block_can_be_read_after_it(block: str, tmp_path: Path) -> None:
    """It has run where the block failed, as a step of a branch has where that was taken; the file runs, too."""
    assert check_text(HANDLED[block]) == []
    path = tmp_path / "handled.machine"
    path.write_text(HANDLED[block], encoding="utf-8")
    app = bide.App()
    app.load(path)
    async with world(app) as there:
        run = await there.start("handled", {})
        assert (await there.result(run.id))[1] == "bad"


def test_L6_a_step_under_on_failure_cannot_be_read_before_or_in_its_block() -> None:
    text = HANDLED["for each"].replace("1 / x", "steps.z")
    [problem] = check_text(text)
    assert "read before it has run" in str(problem)


# ---------------------------------------------------------------- what a machine calls, and what timeouts lead to

CALLS = """machine outer
  accepts
    n as number
  implements
    action inner call
      machine: "inner"
      ARGUMENTS
    launch later
      machine: "inner"
      item: "b"
    compute result
      {price: steps.inner.price, id: steps.later}

machine inner
  accepts
    item as text, is required
    count as number, defaults to 1
    note as text
  responds with
    price as number
  implements
    compute result
      {price: 1}
"""


def said_of(text: str) -> list[str]:
    return [f"{one.severity} {one.line}:{one.column}: {one.message}" for one in check_text(text)]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("ARGUMENTS", 'item: "a"', []),
        ("ARGUMENTS", 'item: "a"\n      count: input.n', []),
        ("ARGUMENTS", "count: 2", ["error 5:12: machine `inner` requires `item`, and is not given it"]),
        ("ARGUMENTS", "item: 7", ["error 7:13: `item` is text, but this is number"]),
        ("ARGUMENTS", 'itme: "a"', ["error 7:7: machine `inner` accepts no `itme`; did you mean `item`?"]),
        ("ARGUMENTS", 'item: "a"\n      x: 1', ["warning 8:7: machine `inner` accepts no `x`"]),
        ('item: "b"', "note: null", ["error 8:12: machine `inner` requires `item`, and is not given it"]),
        ("inner.price", "inner.cost", ["error 12:27: `inner` gives no `cost`"]),
        ("steps.later}", "steps.later.price}", ["error 12:50: text has no fields"]),
    ],
)
def test_what_a_machine_of_the_same_file_is_given_is_looked_at(before: str, after: str, said: list[str]) -> None:
    """L6."""
    text = CALLS.replace(before, after, 1)
    assert said_of(text.replace("ARGUMENTS", 'item: "a"')) == said


TIMED = """machine m
  implements
    compute first
      1
    wait for w
      timeout: "1h"
      on_timeout: flow(late)
      schema
        a as text
    compute after
      2
  flows
    flow late
      compute mine
        3
      compute result
        READ
"""


@pytest.mark.parametrize("read", ["steps.w.a", "steps.after"])
def test_what_cannot_have_run_when_a_time_was_up_is_found_in_its_flow(read: str) -> None:
    """L6: it would always be null."""
    name = read.split(".")[1]
    said = [f"warning 17:15: `{name}` is null here: this flow runs because a time was up before it"]
    assert said_of(TIMED.replace("READ", read)) == said
    looped = TIMED.replace("    compute first\n      1\n", "    run flow(late)\n").replace("READ", read)
    assert said_of(looped) == [], "it is run otherwise, too"


@pytest.mark.parametrize("read", ["steps.first", "steps.mine", "{a: steps.first, b: steps.mine}"])
def test_what_ran_before_a_wait_can_be_read_when_its_time_is_up(read: str) -> None:
    assert said_of(TIMED.replace("READ", read)) == []


def test_in_a_loop_an_earlier_item_may_have_been_answered() -> None:
    text = TIMED.replace("    wait for w", "    for each item in [1, 2]\n    wait for w").replace("READ", "steps.w.a")
    head, body = text.split("    wait for w")
    wait, rest = body.split("    compute after")
    looped = head + "\n".join(f"  {line}" for line in ("    wait for w" + wait).rstrip().split("\n"))
    assert said_of(f"{looped}\n    compute after{rest}") == []


ENDLESS = "machine m\n  implements\n    run flow(a)\n  flows\n    flow a\nA\n    flow b\nB\n"


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("      run flow(a)", "      compute x\n        1", ["error 6:16: flow `a` runs itself"]),
        ("      run flow(b)", "      run flow(a)", ["error 6:16: flow `a` runs itself"]),
        ("      decide x\n        when input.go\n          run flow(a)", "      compute x\n        1", []),
        ('      wait for w\n        timeout: "1h"\n        on_timeout: flow(b)\n      run flow(a)',
         "      compute x\n        1", []),
    ],
)  # fmt: skip
def test_a_flow_that_runs_itself_for_ever_is_found(a: str, b: str, said: list[str]) -> None:
    """L6: where something chooses, or a wait may lead elsewhere, it may end."""
    found = [
        one for one in said_of(ENDLESS.replace("\nA\n", f"\n{a}\n").replace("\nB\n", f"\n{b}\n")) if "error" in one
    ]
    assert [one.partition(" for ever")[0] for one in found] == said


@pytest.mark.parametrize(("kind", "what"), [("callback: true", "a callback"), ('event: "a.b"', "an event")])
@pytest.mark.parametrize("who", ["assignee", "group"])
def test_who_may_answer_is_said_of_waits_for_people_alone(kind: str, what: str, who: str) -> None:
    """L3: it would be ignored in silence."""
    text = f'machine m\n  implements\n    wait for w\n      {kind}\n      timeout: "1h"\n      {who}: "ann"\n'
    [said] = said_of(text)
    assert said == f"error 6:7: `{who}` says who may answer, but `w` waits for {what}, which anybody may bring"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("compute a: 1", "the expression of `a` stands under it, indented, without a `:`"),
        ("compute a\n      None", "there is nothing called `None` here; nothing is `null`"),
        ("compute a\n      1 == 2 ? 1 : 2", "`?` means nothing here; `decide` with `when` and `otherwise` chooses"),
        (
            "compute a\n      input.name.upper()",
            "`upper` cannot be called: expressions have no functions; `action NAME call` calls code",
        ),
        ("goto flow(a)", "there is no `goto`; `run flow(NAME)` runs a flow and goes on after it"),
    ],
)
def test_what_other_languages_have_is_said_in_words_of_this_one(body: str, said: str) -> None:
    """L6."""
    [found] = check_text(f"machine m\n  implements\n    {body}\n")
    assert found.message == said
