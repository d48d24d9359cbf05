"""`policy test` (G1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import SHOP, Bide

POLICY = """

@app.policy
def rules(action):
    if action.kind == "cancel":
        return bide.Deny("nobody cancels")
    if action.kind == "answer" and action.data == {"amount": 9000}:
        return bide.NeedsApproval(title="9000?")
"""


def test_a_policy_is_tried_against_what_has_happened(bide: Bide) -> None:
    paid, gone = bide.start("order"), bide.start("forever")
    bide("signal", paid, "paid", '{"amount": 9000}')
    bide.work_off()
    bide("cancel", gone)
    Path("strict.py").write_text(SHOP + POLICY)
    answer = bide("policy", "test", "--app", "strict.py", "--json").json
    told = [(each["run"], each["action"], each["verdict"], each["why"]) for each in answer["items"]]
    assert told == [(paid, "answer", "needs approval", "9000?"), (gone, "cancel", "denied", "nobody cancels")]
    assert (answer["counts"]["denied"], answer["counts"]["needs approval"]) == (1, 1)
    text = bide("policy", "test", gone, "--app", "strict.py").out
    assert "nobody cancels" in text
    assert text.endswith("1 denied, 0 needs approval\n")
    assert bide("audit").code == 0


ROWS = """

rows = app.pipeline("rows")
rows.expand(list).wait_external("price", transport="interaction-api", returns=int, timeout="1h").collect(list)
"""


@pytest.mark.parametrize("kind", ["start", "suspend", "resume", "answer", "cancel"])
def test_a_policy_on_any_action_is_tried_in_every_style(bide: Bide, kind: str) -> None:
    """G1: what would be denied is what was done, to machines, workflows and pipelines alike."""
    Path("shop.py").write_text(SHOP + ROWS)
    runs = [bide.start("order"), bide.start("approval"), bide.start("rows", "[1]")]
    cancelled = bide.start("order")
    bide.work_off()
    bide("signal", runs[0], "paid", "{}")
    bide("complete", "approve-1", "true")
    assert bide("answer", f"int_{runs[2].removeprefix('run_')}_1_0", "7").code == 0
    bide.work_off()
    bide("cancel", cancelled)
    Path("strict.py").write_text(
        SHOP
        + ROWS
        + f"\n\n@app.policy\ndef no(action):\n    return bide.Deny('no') if action.kind == {kind!r} else None\n"
    )
    denied = [each["run"] for each in bide("policy", "test", "--app", "strict.py", "--json").json["items"]]
    everybody = {"start": [*runs, cancelled], "suspend": [*runs, cancelled], "cancel": [cancelled]}
    assert sorted(denied) == sorted(everybody.get(kind, runs))


def test_an_app_without_a_policy_has_nothing_to_try(bide: Bide) -> None:
    bide.start("echo")
    answer = bide("policy", "test", "--json")
    assert (answer.code, answer.error["code"]) == (1, "bad_configuration")
