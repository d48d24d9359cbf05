"""Callbacks and the links behind them: early, late, twice, forged, foreign, after a rotation; and their pages."""

from __future__ import annotations

import asyncio
import html
import re
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

import bide
from bide.core.tokens import Signer, callback_id, parse_secrets
from bide.server import Server, tries
from bide.server.tries import GUESSES, MISFITS
from bide.testing import world
from bide.testing.world import World
from tests.server.shop import SEEN, app
from tests.server.test_signals_over_http import code

OLD, NEW = "old:0123456789abcdef0123", "new:fedcba9876543210fedc"


async def link(w: World, definition: str = "kyc", user: str = "ann") -> tuple[str, str]:
    """A run that has sent its link: its id and the path of the link."""
    run = await w.start(definition, user)
    return run.id, urlsplit(SEEN[user]).path


def anonymous(w: World) -> httpx.AsyncClient:
    http = w.http()
    del http.headers["Authorization"]
    return http


async def reach(w: World, run_id: str) -> None:
    """Let the run get to its `await cb`."""
    await w.complete(f"ready-{run_id}")


async def test_F9_an_answer_that_comes_early_is_held_for_its_wait(store_url: str) -> None:
    """F9, law 3: the URL is durable before a step can send it, and takes the answer before anybody waits."""
    async with world(app, store_url) as w:
        run_id, path = await link(w)
        [reserved, _] = await w.waits(run_id=run_id, status=None)
        assert reserved.status == "reserved"

        early = await anonymous(w).post(path, json={"approved": True})
        assert (early.status_code, early.json()["outcome"]) == (200, "queued")
        assert (await w.get(run_id)).status == "waiting"
        await reach(w, run_id)

        assert await w.result(run_id) is True
        assert urlsplit(SEEN["ann again"]).path == path  # a replay shows the same URL


async def test_W4_an_answer_wakes_the_run_and_its_repeat_is_a_duplicate(store_url: str) -> None:
    """W4, law 5, T03, T04: the same body again is success; another body is 410, and the first stands."""
    async with world(app, store_url) as w:
        run_id, path = await link(w)
        await reach(w, run_id)
        http = anonymous(w)

        first = await http.post(path, json={"approved": True})
        again = await http.post(path, json={"approved": True})
        other = await http.post(path, json={"approved": False})

        assert (first.status_code, first.json()["outcome"]) == (200, "woke")
        assert (again.status_code, again.json()["duplicate"]) == (200, True)
        assert code(other) == (410, "gone")
        assert await w.result(run_id) is True


async def test_an_invalid_answer_leaves_the_link_open(store_url: str) -> None:
    """W3, T12: 422 with every problem; then the right one is taken."""
    async with world(app, store_url) as w:
        _, path = await link(w)
        http = anonymous(w)

        wrong = await http.post(path, json={"approved": "maybe"})
        too_large = await http.post(path, content=b'"' + b"x" * 600_000 + b'"')
        malformed = await http.post(path, content=b"{")
        right = await http.post(path, json={"approved": True})

        assert code(wrong) == (422, "invalid")
        assert wrong.json()["errors"][0]["path"] == "$.approved"
        assert code(too_large) == (413, "payload_too_large")
        assert code(malformed) == (400, "not_json")
        assert right.status_code == 200


async def test_the_time_counts_from_the_await_and_a_link_dies_with_its_run(store_url: str) -> None:
    """W1, T05: not from minting; after the timeout, and after a cancel, 410 says why."""
    async with world(app, store_url) as w:
        run_id, path = await link(w)
        await w.advance("8d")
        await reach(w, run_id)
        assert (await w.get(run_id)).status == "waiting"
        await w.advance("7d")
        cancelled, other_path = await link(w, user="bob")
        await w.cancel(cancelled)
        http = anonymous(w)

        late = await http.post(path, json={"approved": True})
        dead = await http.post(other_path, json={"approved": True})

        assert await w.result(run_id) == "expired"
        assert code(late) == (410, "gone")
        assert "time" in late.json()["detail"]
        assert code(dead) == (410, "gone")
        assert "nobody waits" in dead.json()["detail"]


async def test_W9_a_link_works_on_after_its_wait_was_escalated_or_assigned(store_url: str) -> None:
    """W9, W11: the link is itself the permission. Without it, who answers has to be of the group."""
    slow = bide.App("slow")
    sent: list[str] = []

    @slow.workflow("slow")
    async def wait_long(step: bide.Step, assignee: str | None) -> Any:
        cb = await step.callback("cb", timeout="1d", assignee=assignee, escalate={"1h": "group:ops"})
        await step.run("send", sent.append, urlsplit(cb.url).path)
        return await cb

    async with world(slow, store_url) as w:
        runs = [await w.start("slow", assignee) for assignee in (None, "ann")]
        early = await anonymous(w).post(sent[1], json=1)
        await w.advance("2h")
        [wait] = await w.waits(run_id=runs[0].id)
        assert wait.details["group"] == "ops"
        with pytest.raises(bide.Forbidden):
            await w.complete(wait.names[0], 2)
        late = await anonymous(w).post(sent[0], json=3)
        assert [(answer.status_code, answer.json()["outcome"]) for answer in (early, late)] == [(200, "woke")] * 2
        assert [await w.result(run.id) for run in runs] == [3, 1]


async def test_T05_the_link_of_a_run_that_ended_without_waiting_for_it_is_410(store_url: str) -> None:
    """T05: whether it came to an end or failed; who follows the link is told that there is nothing left to do."""
    hasty = bide.App("hasty", store="memory://")
    sent: list[str] = []

    @hasty.workflow("hasty", retries=0)
    async def run_on(step: bide.Step, fails: bool) -> str:
        cb = await step.callback("never awaited", timeout="1d", returns=bool)
        await step.run("send", sent.append, urlsplit(cb.url).path)
        if fails:
            raise RuntimeError("it broke")
        return "done"

    async with world(hasty, store_url) as w:
        runs = [await w.start("hasty", fails) for fails in (False, True)]
        assert [(await w.get(run.id)).status for run in runs] == ["completed", "failed"]
        http = anonymous(w)
        for path in sent:
            assert code(await http.post(path, json=True)) == (410, "gone")
            page = await http.get(path)
            assert (page.status_code, "nothing left to do" in page.text) == (410, True)


async def test_W4_a_link_of_an_earlier_life_answers_nothing_in_the_next_one(store_url: str) -> None:
    """W4, W7, law 5: a token is for one wait. After a restart its repeat is a duplicate, another body is 410."""
    monthly = bide.App("monthly")
    sent: list[str] = []

    @monthly.workflow("payout")
    async def payout(step: bide.Step, month: int) -> Any:
        cb = await step.callback("ok", timeout="30d", title=f"Pay for month {month}?", returns=bool)
        await step.run("send", sent.append, urlsplit(cb.url).path)
        answer = await cb
        return bide.Restart(month + 1) if month < 3 else answer

    async with world(monthly, store_url) as w:
        run = await w.start("payout", 1)
        http = anonymous(w)
        assert (await http.post(sent[0], json=True)).json()["outcome"] == "woke"

        again = await http.post(sent[0], json=True)
        other = await http.post(sent[0], json=False)
        page = await http.get(sent[0])

        assert (again.status_code, again.json()["outcome"]) == (200, "duplicate")
        assert code(other) == (410, "gone")
        assert (page.status_code, "month 2" in page.text) == (410, False)
        assert (await w.get(run.id)).state == 2
        for path in sent[1:]:
            assert (await http.post(path, json=True)).json()["outcome"] == "woke"
        assert (await http.post(sent[2], json=False)).json()["outcome"] == "woke"
        assert (await w.result(run.id), len({*sent})) == (False, 3)


async def test_law_9_a_link_that_an_earlier_release_gave_away_after_a_restart_stays_the_one_of_its_wait(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 9: its wait is known by an id without the life, and a body that shows the link again shows the same one."""
    loop = bide.App("loop")
    sent: list[str] = []

    @loop.workflow("loop")
    async def begin_anew(step: bide.Step, life: int) -> Any:
        if not life:
            return bide.Restart(1)
        cb = await step.callback("ok", timeout="30d")
        await step.run("send", sent.append, urlsplit(cb.url).path)
        await step.sleep("night", "1d")
        await step.run("remind", sent.append, urlsplit(cb.url).path)
        return await cb

    async with world(loop, store_url) as w:
        with monkeypatch.context() as earlier:
            earlier.setattr("bide.authoring.workflow.turn.callback_id", lambda run, key, life: callback_id(run, key))
            run = await w.start("loop", 0)
        await w.advance("1d")
        assert len({*sent}) == 1
        assert (await anonymous(w).post(sent[0], json=7)).status_code == 200
        assert await w.result(run.id) == 7


async def test_W5_get_and_head_decide_nothing(store_url: str) -> None:
    """Law 10, W5, T16, T19, T24: mail scanners follow links; the page is kept out of frames, caches and referrers."""
    async with world(app, store_url) as w:
        run_id, path = await link(w)
        await reach(w, run_id)
        http = anonymous(w)
        before = [entry.name for entry in await w.ledger(run_id)]

        for _ in range(20):
            shown = await http.get(path)
            assert shown.status_code == 200
            assert (await http.head(path)).status_code == 200
            await http.options(path)

        assert [entry.name for entry in await w.ledger(run_id)] == before
        assert shown.headers["cache-control"] == "no-store"
        assert shown.headers["referrer-policy"] == "no-referrer"
        assert shown.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in shown.headers["content-security-policy"]
        assert "<b>this</b>" not in shown.text  # T20
        assert html.escape("<b>this</b>") in shown.text
        assert (await http.post(path, json={"approved": True})).status_code == 200


def tampered(token: str) -> dict[str, str]:
    kid, body, mac = token.split(".")
    return {
        "empty": "%20",
        "cut": token[:-1],
        "longer": token + "A",
        "case": token.swapcase(),
        "twice encoded": token.replace(".", "%252E"),
        "homoglyph": token.replace("s", "%D1%95", 1),
        "other body": f"{kid}.{body[:-2]}AA.{mac}",
        "other key id": f"x{kid}.{body}.{mac}",
        "no mac": f"{kid}.{body}.",
        "padding": token + "=",
        "huge": "A" * 5000,
    }


async def test_W4_a_forged_token_is_404_before_any_look_at_the_store(store_url: str) -> None:
    """W4, T01, T02: nothing is looked up for what nothing proves."""
    async with world(app, store_url) as w:
        _, path = await link(w)
        http = anonymous(w)
        forged = tampered(path.rpartition("/")[2])
        forged["another secret"] = Signer(parse_secrets(OLD)).mint("default", "run_1", "callback:1")
        looks = 0

        async def look(*_: Any, **__: Any) -> Any:
            nonlocal looks
            looks += 1

        with pytest.MonkeyPatch.context() as patched:
            for name in ("name", "waits", "run"):
                patched.setattr(w.runtime.store, name, look)
            for what, token in forged.items():
                response = await http.post(f"/resume/{token}", json={"approved": True})
                assert response.status_code == 404, what
                assert (await http.get(f"/resume/{token}")).status_code == 404, what

        assert looks == 0
        assert (await http.post(path, json={"approved": True})).status_code == 200


async def test_a_token_is_good_for_its_own_wait_alone(store_url: str) -> None:
    """T06, T07: bound to workspace, run and wait; a key of another workspace neither helps nor harms."""
    async with world(app, store_url) as w:
        first, path = await link(w)
        second, _ = await link(w, user="bob")

        response = await w.http(workspace="other").post(path, json={"approved": True})
        for run_id in (first, second):
            await reach(w, run_id)

        assert response.status_code == 200
        assert await w.result(first) is True
        assert (await w.get(second)).status == "waiting"


async def test_no_token_is_stored_or_shown(store_url: str) -> None:
    """T08, T11: neither rows nor listings nor ledgers have it. (The step that sent it got it from the code.)"""
    async with world(app, store_url) as w:
        run_id, path = await link(w)
        token = path.rpartition("/")[2]
        await anonymous(w).post(path, json={"approved": True})
        http = w.http()

        texts = [
            (await http.get(f"/v1/runs/{run_id}{part}")).text for part in ("", "/ledger", "/steps", "/inbox", "/result")
        ]
        texts += [(await http.get(f"/v1/waits?status=all&run_id={run_id}")).text]

        assert not [text for text in texts if token in text or token.rpartition(".")[2] in text]


async def test_W4_a_link_outlives_a_rotation_and_says_so_when_its_secret_is_retired(store_url: str) -> None:
    """W4, law 9, T10: old ids verify until they are retired."""
    async with world(app, store_url, resume_secrets=OLD) as w:
        _, path = await link(w)
        http = anonymous(w)
        signer = await w.runtime.signer()

        w.runtime._signer = Signer(parse_secrets(NEW))
        retired = await http.post(path, json={"approved": True})
        w.runtime._signer = Signer(parse_secrets(f"{NEW},{OLD}"))
        taken = await http.post(path, json={"approved": True})

        assert signer.read(path.rpartition("/")[2]) is not None
        assert code(retired) == (404, "not_found")
        assert "no longer known" in retired.json()["detail"]
        assert taken.status_code == 200


async def test_a_hundred_answers_at_once_are_one(store_url: str) -> None:
    """T13: exactly one wakes the run, the others are its duplicates or are refused."""
    async with world(app, store_url) as w:
        run_id, path = await link(w)
        await reach(w, run_id)
        http = anonymous(w)

        answers = await asyncio.gather(*(http.post(path, json={"approved": bool(n % 2)}) for n in range(100)))

        fresh = [a for a in answers if a.status_code == 200 and not a.json()["duplicate"]]
        assert len(fresh) == 1
        assert {a.status_code for a in answers} == {200, 410}
        received = [e for e in await w.ledger(run_id) if e.name == "await_answer_received"]
        assert len(received) == 2  # `ready`, and this one


async def test_F9_accept_and_extract_read_a_provider_s_own_body(store_url: str) -> None:
    """F9: what is no answer is 202 `ignored` and does not use the link; the answer is taken out of the body."""
    async with world(app, store_url) as w:
        run_id, path = await link(w, "payment")
        http = anonymous(w)

        pending = await http.post(path, json={"type": "pending", "object": {"approved": True}})
        empty = await http.post(path, json={"type": "done"})
        done = await http.post(path, json={"type": "done", "object": {"approved": True}, "livemode": False})
        again = await http.post(path, json={"object": {"approved": True}, "type": "done", "livemode": False})

        assert (pending.status_code, pending.json()["outcome"]) == (202, "ignored")
        assert code(empty) == (422, "invalid")
        assert (done.status_code, again.json()["duplicate"]) == (200, True)
        assert await w.result(run_id) is True


# ---------------------------------------------------------------- the page


def fields(page: str) -> dict[str, str]:
    """The form as it is filled in when it is opened."""
    found = re.findall(r'name="([^"]+)"[^>]*?value="([^"]*)"', page)
    return {name: html.unescape(value) for name, value in found if name == "form"}


FILLED = {
    "data.name": "Ann",
    "data.agreed": "true",
    "data.amount": "7",
    "data.colour": '"green"',
    "data.due": "2030-02-01",
    "data.tags": "one\r\ntwo\r\n",
    "data.ratio": "0.5",
    "data.inner.approved": "false",
    "data.notes": "",
}


async def test_W5_the_form_takes_every_type_that_a_form_can_show(store_url: str) -> None:
    """W5: JSON Schema in, JSON out, without a line of script."""
    async with world(app, store_url) as w:
        run_id, path = await link(w, "form")
        http = anonymous(w)
        shown = await http.get(path)
        assert "<script" not in shown.text
        for name in FILLED:
            assert f'name="{name}"' in shown.text

        sent = await http.post(path, data={**fields(shown.text), **FILLED})

        assert sent.status_code == 200, sent.text
        assert "Thank you" in sent.text
        assert await w.result(run_id) == {
            "name": "Ann",
            "agreed": True,
            "amount": 7,
            "colour": "green",
            "due": "2030-02-01",
            "tags": ["one", "two"],
            "ratio": 0.5,
            "inner": {"approved": False, "reason": None},
            "notes": "",
        }
        assert (await http.get(path)).status_code == 410


async def test_W5_errors_stand_beside_their_fields_and_what_was_typed_is_kept(store_url: str) -> None:
    """W5: 422 with the form again."""
    async with world(app, store_url) as w:
        run_id, path = await link(w, "form")
        http = anonymous(w)
        nonce = fields((await http.get(path)).text)

        wrong = await http.post(
            path, data={**nonce, **FILLED, "data.amount": "seven", "data.agreed": "", "data.due": "x"}
        )

        assert wrong.status_code == 422
        for name, said in {
            "amount": "Please give a whole number.",
            "agreed": "Please choose one.",
            "due": "Please give a date, like 2030-02-01.",
        }.items():
            assert f'id="data.{name}:error">{said}<' in wrong.text
        assert 'value="seven"' in wrong.text
        assert 'value="Ann"' in wrong.text
        assert (await w.get(run_id)).status == "waiting"


async def test_W5_everything_that_was_left_out_is_asked_for_at_once(store_url: str) -> None:
    """W5, T17: a form that was sent as it came says beside each field what is missing, and decides nothing."""
    async with world(app, store_url) as w:
        run_id, path = await link(w, "form")
        http = anonymous(w)
        empty = await http.post(path, data=fields((await http.get(path)).text))

        assert empty.status_code == 422
        # Not of the tags: a list of none is a list.
        wanted = {name: f'id="data.{name}:error"' for name in ("name", "agreed", "amount", "colour", "due")}
        assert [name for name, mark in wanted.items() if mark not in empty.text] == []
        assert empty.text.count('class="error"') == len(wanted)
        assert (await w.get(run_id)).status == "waiting"


@pytest.mark.parametrize("kind", ["default", "anything", "nothing needed"])
async def test_T17_pressing_the_button_alone_decides_nothing(store_url: str, kind: str) -> None:
    """Also where everything has a default, which is chosen beforehand, or anything would be an answer."""
    async with world(app, store_url) as w:
        run = await w.start("pressed", kind)
        path, http = urlsplit(SEEN[kind]).path, anonymous(w)
        page = (await http.get(path)).text
        assert page.count(" checked") == (1 if kind == "default" else 0)
        shown = {"data.approved": "true"} if kind == "default" else {}
        for sent in ({}, shown):
            assert (await http.post(path, data={**fields(page), **sent})).status_code == 422
        assert (await w.get(run.id)).status == "waiting"
        chosen = {"data.approved": "false"} if kind == "default" else {}
        assert (await http.post(path, data={**fields(page), **chosen, "confirm": "yes"})).status_code == 200
        assert await w.result(run.id) == {
            "default": {"approved": False, "reason": ""}, "anything": None, "nothing needed": {"note": "x"},
        }[kind]  # fmt: skip


async def test_so_many_invalid_answers_a_minute_are_noted_and_a_good_one_is_taken_all_the_same(store_url: str) -> None:
    """T12: whoever sends rubbish to a link does not fill the ledger, and does not lock the right answer out."""
    async with world(app, store_url) as w:
        run_id, path = await link(w, user="rubbish")
        http = anonymous(w)
        tries = [await http.post(path, json={"approved": n}) for n in range(MISFITS + 1)]
        assert [response.status_code for response in tries] == [422] * MISFITS + [429]
        assert tries[-1].headers["retry-after"] == "60"
        noted = [entry for entry in await w.ledger(run_id) if entry.name == "await_answer_rejected"]
        assert len(noted) == MISFITS
        w.clock.advance(timedelta(minutes=1))
        assert (await http.post(path, json={"approved": 1})).status_code == 422
        for _ in range(MISFITS):
            last = await http.post(path, json={"approved": 1})
        assert last.status_code == 429
        assert (await http.post(path, json={"approved": True})).status_code == 200


def from_(w: World, address: str) -> httpx.AsyncClient:
    """Whoever has this address."""

    async def opened() -> Any:
        return w.runtime

    transport = httpx.ASGITransport(Server(opened), client=(address, 1234))
    return httpx.AsyncClient(transport=transport, base_url="http://bide.test")


async def test_T01_so_many_guesses_a_minute_are_429_and_the_right_token_is_taken_all_the_same(store_url: str) -> None:
    """T01: whoever guesses is told to wait, without a look at the store, and locks nobody out."""
    async with world(app, store_url) as w:
        _, path = await link(w, user="guessed")
        guesser, other = from_(w, "203.0.113.9"), from_(w, "198.51.100.7")
        before = w.runtime.store.round_trips
        guesses = [await guesser.post(f"/resume/guess-{n}", json=True) for n in range(GUESSES // 2)]
        guesses += [await guesser.get(f"/resume/guess-{n}") for n in range(GUESSES // 2)]
        assert {response.status_code for response in guesses} == {404}

        refused = await guesser.post("/resume/guess", json=True)
        unread = await guesser.post("/resume/guess", content=b"{" * 10_000_000)
        page = await guesser.get("/resume/guess")
        form = await guesser.post("/resume/guess", data={"form": "x"})
        assert code(refused) == code(unread) == (429, "too_many_requests")
        assert page.status_code == form.status_code == 429
        assert "text/html" in page.headers["content-type"]
        assert {response.headers["retry-after"] for response in (refused, unread, page, form)} == {"60"}
        assert (await other.get("/resume/guess")).status_code == 404
        assert w.runtime.store.round_trips == before

        w.clock.advance(timedelta(minutes=1))
        assert (await guesser.get("/resume/guess")).status_code == 404
        for _ in range(GUESSES):
            last = await guesser.get("/resume/guess")
        assert last.status_code == 429
        assert (await guesser.post(path, json={"approved": True})).status_code == 200


async def test_T01_guesses_from_many_addresses_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """T01: of an IPv6 address the network counts, and all senders together have a limit too."""
    monkeypatch.setattr(tries, "ALL_GUESSES", GUESSES + 10)
    async with world(app) as w:
        statuses = [(await from_(w, f"2001:db8::{n:x}").get("/resume/x")).status_code for n in range(GUESSES + 1)]
        assert statuses == [404] * GUESSES + [429]
        others = [(await from_(w, f"203.0.113.{n}").get("/resume/x")).status_code for n in range(11)]
        assert others == [404] * 10 + [429]


def test_T01_what_is_remembered_of_guesses_has_a_limit() -> None:
    """T01: a million senders take no more room than ten thousand."""
    counted = tries.Tries(GUESSES, remembered=100)
    for n in range(1_000):
        assert counted.count(f"sender {n}", now=0.0) == 0
        assert len(counted) <= 100


async def test_W5_a_link_that_leads_nowhere_tells_people_what_to_do(store_url: str) -> None:
    """W5, law 9: on a page, in words for somebody who opened it in a mail."""
    async with world(app, store_url) as w:
        _, path = await link(w, "form")
        http = anonymous(w)
        cut_off = await http.get(path[:-3])
        await w.advance("1d")
        over = await http.get(path)
        assert (cut_off.status_code, "Copy the whole link" in cut_off.text) == (404, True)
        assert (over.status_code, "ask whoever sent you the link" in over.text) == (410, True)


async def test_W5_a_link_works_with_a_slash_at_its_end(store_url: str) -> None:
    """W5: programs that show mail add one."""
    async with world(app, store_url) as w:
        run_id, path = await link(w)
        http = anonymous(w)
        assert (await http.get(f"{path}/")).status_code == 200
        assert (await http.post(f"{path}/", json={"approved": True})).status_code == 200
        assert (await http.get(f"{path}//")).status_code == 404
        await reach(w, run_id)
        assert await w.result(run_id) is True


async def test_a_form_of_another_site_or_without_our_page_is_refused(store_url: str) -> None:
    """T17, T18: no nonce, no answer; no choice, no answer; another origin, no answer."""
    async with world(app, store_url) as w:
        run_id, path = await link(w)
        http = anonymous(w)
        nonce = fields((await http.get(path)).text)
        yes = {"data.approved": "true"}

        blind = await http.post(path, data=yes)
        clicked = await http.post(path, data=nonce)
        foreign = await http.post(path, data={**nonce, **yes}, headers={"Origin": "https://evil.example"})
        own = await http.post(path, data={**nonce, **yes}, headers={"Origin": "http://bide.test"})

        assert [r.status_code for r in (blind, clicked, foreign, own)] == [403, 422, 403, 200]
        assert "Please choose one." in clicked.text
        await reach(w, run_id)
        assert await w.result(run_id) is True


@pytest.mark.parametrize(
    "origin", ["http://[", "http://[::1", "//", "bide.test", "", "http://\u2100.example", "http://"]
)
async def test_T18_an_origin_that_is_none_is_foreign(store_url: str, origin: str) -> None:
    """T18, H3: what no browser would send is refused like another site's, and is no failure of ours."""
    async with world(app, store_url) as w:
        run_id, path = await link(w)
        http = anonymous(w)
        filled = {**fields((await http.get(path)).text), "data.approved": "true"}

        refused = await http.post(path, data=filled, headers=[(b"Origin", origin.encode())])

        assert (refused.status_code, "from another site" in refused.text) == (403, True)
        await reach(w, run_id)
        assert (await w.get(run_id)).status == "waiting"


@pytest.mark.parametrize("nonce", ["%C3%A9", "%F0%9F%98%80", "%00", "", "0" * 32])
async def test_T18_a_form_with_another_nonce_is_refused_whatever_it_is_made_of(store_url: str, nonce: str) -> None:
    """T18, H3: also where it is not ASCII."""
    async with world(app, store_url) as w:
        _, path = await link(w)
        headers = {"Content-Type": "application/x-www-form-urlencoded"}

        refused = await anonymous(w).post(path, content=f"form={nonce}&data.approved=true", headers=headers)

        assert (refused.status_code, "not the one of this page" in refused.text) == (403, True)


NOTHING_IN_IT = (
    'the answer cannot be taken out of the body with the expression data.object: there is no "object" where it looks'
)


async def test_W3_a_body_that_no_answer_can_be_taken_out_of_is_rejected_like_one_that_does_not_fit(
    store_url: str,
) -> None:
    """W3, W7, S10, S12: 422 that says what was looked for; in the ledger, among the unused, counted."""
    async with world(app, store_url) as w:
        run_id, path = await link(w, "payment")
        http = anonymous(w)

        refused = await http.post(path, json={"type": "done"})

        assert code(refused) == (422, "invalid")
        assert refused.json()["errors"] == [{"path": "$", "message": NOTHING_IN_IT}]
        [receipt] = refused.json()["receipts"]
        assert (receipt["outcome"], receipt["run_id"], receipt["problems"]) == (
            "invalid", run_id, [f"at $: {NOTHING_IN_IT}"],
        )  # fmt: skip
        [noted] = [entry for entry in await w.ledger(run_id) if entry.name == "await_answer_rejected"]
        assert noted.data["problems"] == [f"at $: {NOTHING_IN_IT}"]
        [kept] = await w.client().unused()
        assert (kept.reason, kept.payload, kept.target) == ("invalid_payload", {"type": "done"}, receipt["wait_id"])
        dropped = 'bide_await_completion_dropped_total{reason="invalid_payload"} 1.0'
        assert dropped in (await w.http().get("/metrics")).text
        assert (await http.post(path, json={"type": "done", "object": {"approved": True}})).status_code == 200
        assert await w.result(run_id) is True


@pytest.mark.parametrize("is_late", [False, True])
async def test_H1_a_link_that_is_closed_is_410_also_where_no_answer_can_be_taken_out(
    store_url: str, is_late: bool
) -> None:
    """H1, W7, S12: 410 goes before 422, and what came is kept as what came too late."""
    async with world(app, store_url) as w:
        run_id, path = await link(w, "payment")
        http = anonymous(w)
        if is_late:
            await w.advance("1d")
        else:
            await http.post(path, json={"type": "done", "object": {"approved": True}})

        refused = await http.post(path, json={"type": "done"})

        assert code(refused) == (410, "gone")
        assert [each["outcome"] for each in refused.json()["receipts"]] == ["late"]
        [kept] = await w.client().unused()
        assert kept.reason == ("timed_out" if is_late else "already_completed")
        assert "await_answer_rejected" not in [entry.name for entry in await w.ledger(run_id)]


async def test_T12_so_many_bodies_a_minute_that_no_answer_can_be_taken_out_of_are_429(store_url: str) -> None:
    """T12: they count as answers that do not fit."""
    async with world(app, store_url) as w:
        run_id, path = await link(w, "payment")
        http = anonymous(w)

        tries = [await http.post(path, json={"type": "done"}) for _ in range(MISFITS + 1)]

        assert [response.status_code for response in tries] == [422] * MISFITS + [429]
        noted = [entry for entry in await w.ledger(run_id) if entry.name == "await_answer_rejected"]
        assert len(noted) == MISFITS
        assert (await http.post(path, json={"type": "done", "object": {"approved": True}})).status_code == 200


@pytest.mark.parametrize(
    ("extract", "said"),
    [
        ("data.list[3]", "index out of bounds: 3"),
        ("data.text + 1", "Unsupported operation: string + int"),
        ("data.object.id", 'there is no "object" where it looks'),
        ("1.0 / 0.0", "what it makes of it cannot be kept: inf is not JSON"),
        ("18446744073709551615u", "what it makes of it cannot be kept: the number is out of range"),
    ],
)
async def test_W3_what_an_expression_makes_of_a_body_must_be_something_that_can_be_kept(
    store_url: str, extract: str, said: str
) -> None:
    """W3, H1: else it is 422 on a link that is open, and 410 on one that is not."""
    makes, sent = bide.App("makes", store="memory://"), list[str]()

    @makes.workflow("make")
    async def make(step: bide.Step, input: Any) -> Any:
        cb = await step.callback("made", timeout="1d", extract=f"has(data.ok) ? data.ok : {extract}")
        await step.run("send", sent.append, urlsplit(cb.url).path)
        return await cb

    async with world(makes, store_url) as w:
        run, http = await w.start("make"), anonymous(w)
        body = {"list": [], "text": "x"}
        refused = await http.post(sent[0], json=body)
        taken = await http.post(sent[0], json={"ok": 1})
        late = await http.post(sent[0], json=body)

        assert code(refused) == (422, "invalid")
        assert f"{extract}: {said}" in refused.json()["errors"][0]["message"]
        assert "await_answer_rejected" in [entry.name for entry in await w.ledger(run.id)]
        assert (taken.status_code, code(late)) == (200, (410, "gone"))


async def test_S10_a_refused_answer_comes_with_its_receipt(store_url: str) -> None:
    """S10: 422 and 410 of a link say what a delivery with a key is told: outcome, reason, run and wait."""
    async with world(app, store_url) as w:
        run_id, path = await link(w)
        await reach(w, run_id)
        http = anonymous(w)
        wrong = await http.post(path, json={"approved": 7})
        await http.post(path, json={"approved": True})
        other = await http.post(path, json={"approved": False})
        late_id, late_path = await link(w, "payment", "bob")
        await w.advance("1d")
        late = await http.post(late_path, json={"type": "done", "object": {"approved": True}})

        told = [response.json()["receipts"] for response in (wrong, other, late)]
        assert [(each["outcome"], each["run_id"]) for [each] in told] == [
            ("invalid", run_id), ("conflict", run_id), ("late", late_id),
        ]  # fmt: skip
        assert told[0][0]["problems"] == ['at $.approved: 7 is not of type "boolean"']
        assert told[2][0]["reason"] == "timed_out"


@pytest.mark.parametrize(
    ("ending", "detail", "said"),
    [
        ("fail", "the wait was failed before an answer came", "This was closed before an answer came."),
        ("cancel", "nobody waits for this answer any more", "This answer is not needed any more."),
    ],
)
async def test_W7_the_link_of_a_wait_that_an_operator_ended_says_so(
    store_url: str, ending: str, detail: str, said: str
) -> None:
    """W7, law 9: nobody answered, and so nobody is told that somebody did."""
    async with world(app, store_url) as w:
        run_id, path = await link(w, "form")
        http = anonymous(w)
        nonce = fields((await http.get(path)).text)
        [wait] = await w.waits(run_id=run_id)
        assert (await w.http().post(f"/v1/waits/{wait.id}/{ending}", json={"reason": "no more"})).status_code == 200

        sent = await http.post(path, json={"name": "Ann"})
        pages = [await http.get(path), await http.post(path, data={**nonce, **FILLED})]

        assert code(sent) == (410, "gone")
        assert detail in sent.json()["detail"]
        for page in pages:
            assert (page.status_code, said in page.text, "answered" in page.text) == (410, True, False)


async def test_H1_a_form_with_a_character_that_cannot_be_kept_is_410_on_a_used_link(store_url: str) -> None:
    """H1, H3: what stands in the way goes before what is wrong with the data."""
    async with world(app, store_url) as w:
        _, path = await link(w)
        http = anonymous(w)
        filled = {**fields((await http.get(path)).text), "data.approved": "true", "data.reason": "a\0b"}
        open_ = await http.post(path, data=filled)
        await http.post(path, json={"approved": True})

        used = await http.post(path, data=filled)

        assert (open_.status_code, "cannot be kept" in open_.text) == (422, True)
        assert (used.status_code, "the first answer stands" in used.text) == (410, True)


@pytest.mark.parametrize("length", [530_000, 700_000])
async def test_W5_an_answer_that_is_too_long_is_said_in_words_for_people(store_url: str, length: int) -> None:
    """W5: 413 without a path, a number of bytes or the name of a setting."""
    async with world(app, store_url) as w:
        _, path = await link(w)
        http = anonymous(w)
        filled = {**fields((await http.get(path)).text), "data.approved": "true", "data.reason": "x" * length}

        refused = await http.post(path, data=filled)

        assert (refused.status_code, "Your answer is too long" in refused.text) == (413, True)
        assert not re.search(r"\$|bytes|payload", refused.text.partition("<main>")[2])
