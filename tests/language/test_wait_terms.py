"""What a wait of a machine file may say beside what it waits for: reminders, escalation, metadata, quorums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bide
from bide.authoring.language import translate
from bide.authoring.language.checking import check_text
from bide.core.redaction import COVERED
from bide.testing import World, world
from tests.support.machine_files import EVERY_LANGUAGE_AND_EVERY_STORE

SIGNING = """
machine signing
    accepts
        contract as text, is required

    implements
        wait for signed
            title: "Sign ${input.contract}?"
            group: "leads"
            quorum: 2
            decides: "approved"
            veto: true
            reminders: ["4h", "24h"]
            escalate: {"60h": "group:board"}
            metadata: {contract: input.contract, kind: "legal"}
            timeout: "7d"
            schema
                approved as boolean, is required
                reason as text, defaults to "none given"

        compute result
            {
                outcome: steps.signed.outcome,
                approved: steps.signed.value,
                last: steps.signed.answers[0].by,
                why: steps.signed.answers[0].value.reason,
            }
"""
GROUPS = {"ann": ["leads"], "bob": ["leads"], "eve": ["board"]}


def app_of(text: str, tmp_path: Path, language: str = "en") -> bide.App:
    path = tmp_path / "file.machine"
    path.write_text(translate(text, language), encoding="utf-8")
    app = bide.App()
    app.load(path)
    app.groups(lambda principal: GROUPS.get(principal, []))
    return app


async def names(there: World, run_id: str) -> list[str]:
    return [entry.name for entry in await there.ledger(run_id)]


@EVERY_LANGUAGE_AND_EVERY_STORE
async def test_W11_several_people_must_agree(language: str, store_url: str, tmp_path: Path) -> None:
    async with world(app_of(SIGNING, tmp_path, language), store=store_url) as there:
        run = await there.start("signing", {"contract": "lease"})
        [task] = await there.interactions(run_id=run.id)
        with pytest.raises(bide.errors.Forbidden):
            await there.answer(task.id, {"approved": True}, by="eve")
        await there.answer(task.id, {"approved": True}, by="ann")
        assert (await there.get(run.id)).status == "waiting"
        [shown] = await there.interactions(run_id=run.id)
        assert [(given.value, given.by) for given in shown.answers] == [({"approved": True}, "ann")]
        await there.answer(task.id, {"approved": True, "reason": "fine"}, by="bob")
        assert await there.result(run.id) == {
            "outcome": "agreed",
            "approved": True,
            "last": "ann",
            "why": "none given",
        }


async def test_W11_one_veto_is_enough(store_url: str, tmp_path: Path) -> None:
    async with world(app_of(SIGNING, tmp_path), store=store_url) as there:
        run = await there.start("signing", {"contract": "lease"})
        [task] = await there.interactions(run_id=run.id)
        await there.answer(task.id, {"approved": False, "reason": "no"}, by="ann")
        assert await there.result(run.id) == {"outcome": "vetoed", "approved": False, "last": "ann", "why": "no"}


@EVERY_LANGUAGE_AND_EVERY_STORE
async def test_W9_reminders_come_and_others_are_asked(language: str, store_url: str, tmp_path: Path) -> None:
    async with world(app_of(SIGNING, tmp_path, language), store=store_url) as there:
        run = await there.start("signing", {"contract": "lease"})
        await there.advance("25h")
        assert (await names(there, run.id)).count("await_reminder") == 2
        await there.advance("36h")
        assert (await names(there, run.id)).count("await_escalated") == 1
        [task] = await there.interactions(run_id=run.id)
        assert task.group == "board"
        await there.answer(task.id, {"approved": False}, by="eve")
        assert (await there.result(run.id))["outcome"] == "vetoed"


@pytest.mark.parametrize("kind", ['event: "paid"', "callback: true", 'channel: "chat"'])
async def test_W1_W9_every_kind_of_wait_has_metadata_and_reminders(kind: str, store_url: str, tmp_path: Path) -> None:
    text = f"""
machine waiting
    implements
        wait for paid
            {kind}
            metadata: {{order: input.order, parts: [1, 2]}}
            reminders: "1h"
            escalate: {{"2h": "user:ann"}}
            timeout: "3h"
            on_timeout: flow(late)
    flows
        flow late
            compute result
                "late"
"""
    async with world(app_of(text, tmp_path), store=store_url) as there:
        run = await there.start("waiting", {"order": 7})
        [wait] = await there.waits(run_id=run.id)
        assert wait.details["metadata"] == {"order": 7, "parts": [1, 2], "on_timeout": "late"}
        await there.advance("2h")
        assert {"await_reminder", "await_escalated"} <= set(await names(there, run.id))
        assert "its flow 'late' runs" in " ".join((await there.explain(run.id)).explanation)
        await there.advance("1h")
        assert await there.result(run.id) == "late"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("reminders: input.times", "after the wait has ended"),
        ("escalate: input.times", "give a mapping"),
        ("metadata: input.times", "give an object, not a list"),
        ("metadata: input.named", "`on_timeout` is a name of bide's own"),
    ],
)
async def test_what_only_a_run_knows_is_looked_at_when_it_comes_to_it(said: str, why: str, tmp_path: Path) -> None:
    text = f'machine m\n    implements\n        wait for x\n            timeout: "1h"\n            {said}\n'
    async with world(app_of(text, tmp_path)) as there:
        run = await there.start("m", {"times": ["2h"], "named": {"on_timeout": 1}})
        found = await there.get(run.id)
        assert (found.status, found.error is not None and why in found.error.message) == ("failed", True)


def said_of(*lines: str, fields: str = "approved as boolean, is required", timeout: str = '"2d"') -> list[Any]:
    body = "".join(f"            {line}\n" for line in (f"timeout: {timeout}", *lines, "schema", f"    {fields}"))
    text = f"machine m\n    implements\n        wait for x\n{body}"
    return [problem.message for problem in check_text(text)]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['reminders: ["2d"]'], '"2d" is not before the end of the wait, after "2d"'),
        (["reminders: 172800"], '172800 is not before the end of the wait, after "2d"'),
        (
            ['reminders: ["often"]'],
            '"often" is no length of time; `reminders` takes times like ["4h", "24h"]',
        ),
        (["reminders: true"], '`reminders` takes times like ["4h", "24h"], but this is boolean'),
        (["reminders: [{}]"], '`reminders` takes times like ["4h", "24h"], but this is map'),
        (
            ['escalate: ["1h"]'],
            '`escalate` takes times and who is next, like {"60h": "group:leads"}, but this is list',
        ),
        (
            ['escalate: {soon: "group:leads"}'],
            '"soon" is no length of time; `escalate` takes times and who is next, like {"60h": "group:leads"}',
        ),
        (['escalate: {"3d": "group:leads"}'], '"3d" is not before the end of the wait, after "2d"'),
        (['escalate: {"1h": "group:"}'], 'this names nobody; write "group:leads" or "user:ann"'),
        (['escalate: {"1h": 7}'], '`escalate` goes to "group:leads" or "user:ann", but this is number'),
        (["metadata: 7"], "`metadata` takes map, but this is number"),
        (["metadata: {on_timeout: 1}"], "`on_timeout` is a name of bide's own"),
        (["quorum: 1"], "one answer is enough anyway; leave `quorum` out"),
        (["quorum: 1.5"], "`quorum` is how many people must answer: a whole number from 2 to 100"),
        (["quorum: true"], "`quorum` is how many people must answer: a whole number from 2 to 100"),
        (["quorum: 2", 'assignee: "ann"'], "only one person may answer `x`; give a group, or no assignee"),
        (["quorum: 2", "veto: true"], 'a veto is a value of the field that is counted; name it: `decides: "approved"`'),
        (['decides: "approved"'], "`decides` is about the answers of several people; add `quorum: 2`"),
        (["veto: true"], "`veto` is about the answers of several people; add `quorum: 2`"),
        (["quorum: 2", 'decides: "aproved"'], "`x` asks for no field `aproved`; did you mean `approved`?"),
        (["quorum: 2", "decides: approved"], 'the name of a field stands in quotes here: "approved"'),
        (["quorum: 2", "decides: 7"], "`decides` is the name of the field that is counted, in quotes"),
        (["quorum: 2", 'decides: "approved"', 'veto: "no"'], "`approved` is boolean, but this is text"),
        (
            ["quorum: 2", 'event: "paid"'],
            "`quorum` says how many people must answer, but `x` waits for an event, which anybody may bring",
        ),
        (["remindrs: []"], "`remindrs` means nothing here; did you mean `reminders`?"),
    ],
)
def test_L6_what_a_wait_says_is_checked(lines: list[str], message: str) -> None:
    assert said_of(*lines) == [message]


def test_L6_a_veto_is_a_value_of_the_field_that_is_counted() -> None:
    fields = "verdict as text, is required"
    assert said_of("quorum: 2", 'decides: "verdict"', 'veto: "no"', fields=fields) == []
    [said] = said_of("quorum: 2", 'decides: "verdict"', "veto: true", fields=fields)
    assert said == "`verdict` is text; name the value that is a veto"


def test_L6_reminders_of_a_wait_for_ever_come_when_they_like() -> None:
    assert said_of('reminders: ["400d"]', timeout="forever") == []


def test_L6_what_several_people_came_to_has_its_own_fields() -> None:
    [problem] = check_text(SIGNING.replace("steps.signed.outcome", "steps.signed.approved"))
    assert problem.message == "`signed` gives no `approved`"


async def test_G4_hidden_metadata_of_a_file_is_shown_to_nobody(store_url: str, tmp_path: Path) -> None:
    text = SIGNING.replace("machine signing\n", "machine signing\n    redact: contract\n").replace(
        'title: "Sign ${input.contract}?"', 'title: "Sign?"'
    )
    async with world(app_of(text, tmp_path), store=store_url) as there:
        run = await there.start("signing", {"contract": "canary-lease"})
        [wait] = await there.waits(run_id=run.id)
        assert wait.details["metadata"] == {"contract": COVERED, "kind": "legal", "on_timeout": None}
