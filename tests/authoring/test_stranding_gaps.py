"""Eight ways in which a system like this one leaves runs behind (catalogue 3.6): none of them can happen here.

Each is staged on a workflow with one request, a workflow with many and a pipeline of items, unless it is about one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

import bide
from bide.engine.admission import Admitting
from bide.engine.probes import Crash
from bide.engine.transport import Answer, Dispatched, Request, Sent, Undelivered
from bide.testing import World, world
from tests.support.worlds import ledger_names

HOUR = timedelta(hours=1)
STYLES = {"one": 1, "each": 3, "items": 3}  # and how many requests each sends
RESULTS: dict[str, Any] = {"one": 0, "each": [0, 10, 20], "items": [0, 10, 20]}
each_style = pytest.mark.parametrize("style", STYLES)


class Provider:
    """A transport that does what a test tells it, once each; otherwise it sends."""

    name = "provider"

    def __init__(self) -> None:
        self.seen: list[Request] = []
        self.then: list[BaseException | Dispatched] = []

    async def dispatch(self, requests: Sequence[Request]) -> Sequence[Dispatched]:
        if not self.then:
            self.seen += requests
            return [Sent() for _ in requests]
        told = self.then.pop(0)
        if isinstance(told, BaseException):
            raise told
        return [told for _ in requests]


def an_app(**options: Any) -> tuple[bide.App, Provider]:
    app, provider = bide.App("gaps"), Provider()
    asked: dict[str, Any] = {"transport": "provider", "timeout": "1h", "returns": int, **options}
    app.transport(provider)

    @app.workflow("one", retries=0)
    async def one(step: bide.Step, count: int) -> Any:
        return await step.request("ask", 0, **asked)

    @app.workflow("each", retries=0)
    async def each(step: bide.Step, count: int) -> Any:
        return await step.request_each("ask", range(count), **asked)

    app.pipeline("items", retries=0).expand(range).wait_external("ask", **asked).collect(list)
    return app, provider


async def answer_all(there: World, requests: Sequence[Request], *, settle: bool = True) -> list[str]:
    return [(await there.reply(request, request.data * 10, settle=settle)).outcome for request in requests]


@each_style
async def test_gap_1_an_answer_between_the_deadline_and_the_look_at_it_ends_the_wait_or_is_late(
    store_url: str, style: str
) -> None:
    """Interaction and wait end in one commit, so no run waits for a deadline that was used up: all in before the look
    complete the run, and one that is missing lets it time out (law 1, D5)."""
    app, provider = an_app()
    async with world(app, store_url, live=["provider"]) as there:
        ends = await there.start(style, STYLES[style])
        other = await there.start(style, STYLES[style])
        there.clock.advance(2 * HOUR)  # and nobody has looked at the timers
        await answer_all(there, [r for r in provider.seen if r.run_id == ends.id], settle=False)
        missing, *others = [r for r in provider.seen if r.run_id == other.id]
        await answer_all(there, others, settle=False)
        assert await there.result(ends.id) == RESULTS[style]
        with pytest.raises(bide.RunFailedError, match=r"timed.out|AWAIT_TIMEOUT|time"):
            await there.result(other.id)
        assert (await there.reply(missing, 0)).outcome == "late"


@each_style
async def test_gap_2_a_crash_after_an_answer_is_stored_needs_no_second_delivery(store_url: str, style: str) -> None:
    """The answer, the end of the wait and the release are one commit (D4, D6)."""
    app, provider = an_app()
    async with world(app, store_url, live=["provider"]) as there:
        run = await there.start(style, STYLES[style])
        await answer_all(there, provider.seen, settle=False)
        await there.crash()
        assert await there.result(run.id) == RESULTS[style]
        entries = await there.ledger(run.id)
        at = {entry.name: entry.at for entry in entries}
        assert at["await_unit_completed"] == at["await_resume_released"]


@each_style
@pytest.mark.parametrize("fault", [Crash("before it was sent"), OSError("no route"), Undelivered("not now")], ids=str)
async def test_gap_3_a_dispatch_that_dies_or_fails_is_sent_again_with_the_same_ids(
    store_url: str, style: str, fault: BaseException | Dispatched
) -> None:
    """The outbox keeps what no transport has taken; an interaction that failed to go out is no dead one (U7)."""
    app, provider = an_app()
    async with world(app, store_url, live=["provider"]) as there:
        provider.then = [fault, fault]
        run = await there.start(style, STYLES[style])
        await there.advance("5m")
        assert provider.then == []
        assert [request.item for request in provider.seen] == list(range(STYLES[style]))
        ids = [row.id for row in await there.interactions(run_id=run.id)]
        assert [request.interaction_id for request in provider.seen] == ids
        await answer_all(there, provider.seen)
        assert await there.result(run.id) == RESULTS[style]


@each_style
@pytest.mark.parametrize("sent", [True, False], ids=["sent", "not sent yet"])
async def test_gap_4_a_run_can_be_cancelled_with_all_that_it_waits_for(store_url: str, style: str, sent: bool) -> None:
    """The wait, its interactions and what is in the outbox end with the run; an answer is told so (W8)."""
    app, provider = an_app()
    async with world(app, store_url, live=["provider"]) as there, there.http() as http:
        provider.then = [] if sent else [Undelivered("not now")] * 100
        run = await there.start(style, STYLES[style])
        rows = await there.interactions(run_id=run.id)
        assert (await http.post(f"/v1/runs/{run.id}/cancel", json={"reason": "not needed"})).status_code == 202
        provider.then = []
        await there.advance("2h")
        assert (await there.get(run.id)).status == "cancelled"
        assert [wait.status for wait in await there.waits(run_id=run.id, status=None)] == ["cancelled"]
        ended = await there.interactions(run_id=run.id, status=None)
        assert [row.status for row in ended] == ["cancelled"] * STYLES[style]
        assert len(provider.seen) == (STYLES[style] if sent else 0)
        receipt = await there.reply(rows[0].id, 0)
        assert (receipt.outcome, receipt.reason) == ("no_target", "cancelled")
        assert "await_unit_terminal" in await ledger_names(there, run.id)


@each_style
async def test_gap_5_a_key_of_an_answer_is_used_and_another_answer_is_a_conflict(store_url: str, style: str) -> None:
    """By the dedup key a repeat is a duplicate and a misuse of it a conflict; without one, the payload decides: the
    same is a duplicate, another one is never taken for it (S7, U8)."""
    app, provider = an_app()
    async with world(app, store_url, live=["provider"]) as there, there.http() as http:
        run = await there.start(style, STYLES[style])
        first = provider.seen[0].interaction_id
        path = f"/v1/interactions/{first}/complete"
        taken = await http.post(path, json={"data": 0, "dedup_key": "evt-1"})
        again = await http.post(path, json={"data": 0, "dedup_key": "evt-1"})
        misused = await http.post(path, json={"data": 5, "dedup_key": "evt-1"})
        unkeyed = await http.post(path, json={"data": 0})
        other = await http.post(path, json={"data": 5})
        assert (taken.status_code, taken.json()["duplicate"]) == (200, False)
        assert [(r.status_code, r.json()["duplicate"]) for r in (again, unkeyed)] == [(200, True), (200, True)]
        assert [misused.status_code, other.status_code] == [409, 409]
        assert (await there.interaction(first)).answer == 0
        assert await answer_all(there, provider.seen[1:]) == (["queued", "woke"] if len(provider.seen) > 1 else [])
        assert await there.result(run.id) == RESULTS[style]
        assert (await http.post(path, json={"data": 0, "dedup_key": "evt-1"})).json()["duplicate"] is True


async def test_gap_6_each_refusal_has_its_own_answer_and_a_token_counts_where_it_is_given(store_url: str) -> None:
    """A forged or foreign token is refused even with a valid key, and the wait stays open; no key and no token: 401;
    unknown, conflicting, late and invalid are told apart (§7, H1, W7)."""
    app, provider = an_app()
    async with world(app, store_url, live=["provider"]) as there, there.http() as http:
        run = await there.start("each", 3)
        first, second, third = provider.seen
        path = f"/v1/interactions/{first.interaction_id}/complete"

        def token(request: Request) -> str:
            assert request.resume_url is not None
            return request.resume_url.rpartition("/")[2]

        async def said(data: Any, given: str | None = None, at: str = path, **more: Any) -> tuple[int, str]:
            body = {"data": data} if given is None else {"data": data, "resume_token": given}
            response = await http.post(at, json=body, **more)
            return response.status_code, response.json().get("code") or response.json()["outcome"]

        forged = token(first)[:-2] + ("AA" if not token(first).endswith("AA") else "BB")
        assert await said(0, forged) == (404, "bad_token")
        assert await said(0, token(second)) == (404, "bad_token")
        assert await said(0, headers={"Authorization": ""}) == (401, "unauthorized")
        assert await said(0, at="/v1/interactions/int_nobody_1_0/complete") == (404, "no_target")
        assert await said("many") == (422, "invalid")
        assert (await there.interaction(first.interaction_id)).status == "waiting"
        async with there.http("other") as elsewhere:
            foreign = await elsewhere.post(path, json={"data": 0, "resume_token": token(first)})
        unknown = await http.post("/v1/interactions/int_nobody_1_0/complete", json={"data": 0})
        assert (foreign.status_code, foreign.content) == (404, unknown.content)
        assert await said(0, token(first)) == (200, "queued")
        assert await said(7) == (409, "conflicting_answer")
        await there.reply(second, 10)
        await there.advance("2h")
        assert (await there.get(run.id)).status == "failed"
        assert (await said(20, at=f"/v1/interactions/{third.interaction_id}/complete"))[0] == 410


async def test_gap_7_runs_with_equal_business_keys_are_each_released_by_their_own_answers(store_url: str) -> None:
    """Interactions and correlation ids are made of the run, too (U7)."""
    app, provider = bide.App("keys"), Provider()
    pipeline = (
        app.pipeline("keyed")
        .expand(lambda _: [{"iban": "DE1"}, {"iban": "DE1"}])
        .wait_external("ask", transport=provider, timeout="1h", key=lambda row: row["iban"])
        .map(lambda answer, item: [item.key, item.request["iban"], item.answer])
        .collect(list)
    )
    async with world(app, store_url) as there:
        runs = [await there.start(pipeline, None) for _ in range(2)]
        requests = there.sent("provider")
        assert len({request.interaction_id for request in requests}) == 4
        assert len({request.correlation_id for request in requests}) == 4
        for at, request in enumerate(requests):
            by_correlation = Answer(correlation_id=request.correlation_id, data=at)
            [receipt] = await Admitting(there.runtime, "provider").admit([by_correlation])
            assert receipt.run_id == request.run_id
        assert [await there.result(run.id) for run in runs] == [
            [["DE1", "DE1", 0], ["DE1", "DE1", 1]],
            [["DE1", "DE1", 2], ["DE1", "DE1", 3]],
        ]


@each_style
async def test_gap_8_a_deadline_is_kept_to_the_moment(store_url: str, style: str) -> None:
    """Not by a sweep of every thirty seconds: the timeout is told at the deadline (W6)."""
    app, _ = an_app()
    async with world(app, store_url) as there:
        run = await there.start(style, STYLES[style])
        began = there.now
        await there.advance(HOUR - timedelta(milliseconds=1))
        assert (await there.get(run.id)).status == "waiting"
        await there.advance(timedelta(milliseconds=1))
        assert (await there.get(run.id)).status == "failed"
        [told] = [entry for entry in await there.ledger(run.id) if entry.name == "await_unit_terminal"]
        assert told.at == began + HOUR


@pytest.mark.parametrize(
    ("style", "options", "result"),
    [
        ("one", {"default": "gave up"}, "gave up"),
        ("each", {"default": "gave up"}, "gave up"),
        ("each", {"on_item_timeout": "reject", "keep_rejected": True}, 3),
        ("items", {"on_item_timeout": "reject"}, []),
    ],
)
async def test_gap_8_what_a_timeout_means_is_the_choice_of_who_waits(
    store_url: str, style: str, options: dict[str, Any], result: Any
) -> None:
    """A default, or to go on without the items that were not answered (W2, U4)."""
    app, provider = bide.App("choices"), Provider()
    asked: dict[str, Any] = {"transport": provider, "timeout": "1h", "returns": int, **options}

    @app.workflow("one", retries=0)
    async def one(step: bide.Step, count: int) -> Any:
        return await step.request("ask", 0, **{**asked, "transport": "provider"})

    @app.workflow("each", retries=0)
    async def each(step: bide.Step, count: int) -> Any:
        answers = await step.request_each("ask", range(count), **{**asked, "transport": "provider"})
        return answers if isinstance(answers, str) else sum(isinstance(answer, bide.Rejected) for answer in answers)

    if style == "items":
        app.pipeline("items", retries=0).expand(range).wait_external("ask", **asked).collect(list)
    else:
        app.transport(provider)
    async with world(app, store_url) as there:
        run = await there.start(style, 3)
        await there.advance("1h")
        assert await there.result(run.id) == result
