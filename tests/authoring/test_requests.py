"""Requests over transports: dispatch, admission, workflows, and what must never strand a run (F11, U6–U9, U15)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import bide
from bide.core.commands import TakenIn
from bide.core.exchanging import Given, TakeIn
from bide.core.records import RunId
from bide.core.requests import SettleDeadLetter
from bide.core.streaming import ItemOffer
from bide.engine.admission import Admitting
from bide.engine.transport import Answer, Answered, Dispatched, Request, Sent, Undelivered
from bide.testing import World, world
from tests.support.worlds import ledger_names


class Provider:
    """A transport whose results a test sets."""

    name = "provider"

    def __init__(self) -> None:
        self.results: list[Dispatched] = []
        self.seen: list[Request] = []

    async def dispatch(self, requests: Sequence[Request]) -> Sequence[Dispatched]:
        self.seen.extend(requests)
        return [self.results.pop(0) if self.results else Sent() for _ in requests]


class Paid(msgspec.Struct):
    amount: int


def patient(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a request as a run's input can say them."""
    return {**options, "timeout": bide.FOREVER} if options.get("timeout") == "forever" else options


def an_app() -> tuple[bide.App, Provider]:
    app, provider = bide.App("requests"), Provider()
    app.transport(provider)

    @app.workflow("one", retries=0)
    async def one(step: bide.Step, options: dict[str, Any]) -> Any:
        given = {"transport": "provider", "timeout": "1h", "returns": Paid, **patient(options)}
        paid = await step.request("pay", {"order": 7}, **given)
        return paid.amount if isinstance(paid, Paid) else paid

    @app.workflow("each", retries=0)
    async def each(step: bide.Step, options: dict[str, Any]) -> Any:
        given = {"transport": "provider", "timeout": "1h", "returns": int, **patient(options)}
        count = given.pop("count", 3)
        try:
            answers = await step.request_each("each", range(count), **given)
        except bide.ItemsRejectedError as error:
            return {"rejected": error.rejected}
        except bide.WaitTimeoutError:
            return "timed out"
        return [f"rejected: {a.reason}" if isinstance(a, bide.Rejected) else a for a in answers]

    (
        app.pipeline("lasting", retries=0)
        .expand(range)
        .wait_external("ask", transport="provider", timeout=bide.FOREVER, max_pending=2)
        .collect(list)
    )
    (
        app.pipeline("items", retries=0)
        .expand(range)
        .wait_external("ask", transport="provider", timeout="1h", max_pending=2)
        .collect(list)
    )
    return app, provider


# ---------------------------------------------------------------- workflows


async def test_F11_a_request_goes_out_and_its_answer_comes_back_typed(store_url: str) -> None:
    """F11."""
    app, _ = an_app()
    async with world(app, store_url) as there:
        run = await there.start("one", {})
        [request] = there.sent("provider")
        assert (request.data, request.step, request.item, request.run_id) == ({"order": 7}, "pay", 0, run.id)
        assert request.deadline is not None
        wrong = await there.reply(request, {"amount": "much"})
        assert (wrong.outcome, (await there.get(run.id)).status) == ("invalid", "waiting")
        assert (await there.reply(request, {"amount": 100})).outcome == "woke"
        assert await there.result(run.id) == 100
        assert (await ledger_names(there, run.id)).count("await_interaction_dispatched") == 1


@pytest.mark.parametrize(("options", "ends"), [({}, "failed"), ({"default": "gave up"}, "completed")])
async def test_a_request_that_is_not_answered_raises_or_gives_its_default(
    store_url: str, options: dict[str, Any], ends: str
) -> None:
    """F13."""
    app, _ = an_app()
    async with world(app, store_url) as there:
        run = await there.start("one", options)
        await there.advance("2h")
        info = await there.get(run.id)
        assert info.status == ends
        assert info.result == ("gave up" if options else None)
        assert (await there.reply(there.sent("provider")[0], {"amount": 1})).outcome == "late"


async def test_W13_a_request_that_is_declined_raises_in_the_workflow(store_url: str) -> None:
    """W13."""
    app, _ = an_app()
    async with world(app, store_url) as there:
        run = await there.start("one", {})
        await there.reply(there.sent("provider")[0], error="closed")
        info = await there.get(run.id)
        assert info.status == "failed"
        assert info.error is not None
        assert "closed" in info.error.message


@pytest.mark.parametrize("definition", ["one", "each"])
async def test_W1_people_see_of_a_request_what_its_author_said(store_url: str, definition: str) -> None:
    app, _ = an_app()
    labels = {"title": "Pay", "description": "now", "channel": "mail", "group": "clerks", "metadata": {"order": 7}}
    async with world(app, store_url) as there:
        run = await there.start(definition, {**labels, "transport": "interaction-api"})
        first = (await there.interactions(run_id=run.id))[0]
        assert {name: getattr(first, name) for name in labels} == labels
        with pytest.raises(bide.Forbidden):
            await there.answer(first.id, {"amount": 1}, by="eve")


async def test_W9_a_request_that_may_never_end_is_reminded_of(store_url: str) -> None:
    app, _ = an_app()
    async with world(app, store_url) as there:
        run = await there.start("one", {"timeout": "forever", "reminders": ["1h", "2h"]})
        await there.advance("3h")
        assert (await ledger_names(there, run.id)).count("await_reminder") == 2
        assert (await there.get(run.id)).status == "waiting"


async def test_U9_what_correlation_ids_are_made_with_is_shown_to_nobody(store_url: str) -> None:
    """U9: unguessable, also for who may look at waits."""
    app, _ = an_app()
    async with world(app, store=store_url) as there:
        run = await there.start("each", {})
        [wait] = await there.waits(run_id=run.id)
        assert "transport" in wait.details
        assert "nonce" not in wait.details
        assert "nonce" not in repr(await there.ledger(run.id))


async def test_F11_requests_for_each_item_give_answers_in_item_order(store_url: str) -> None:
    """F11: the order of items, not of arrival."""
    app, _ = an_app()
    async with world(app, store_url) as there:
        run = await there.start("each", {})
        requests = there.sent("provider")
        for request in reversed(requests):
            await there.reply(request, request.data * 10)
        assert await there.result(run.id) == [0, 10, 20]
        assert await there.result((await there.start("each", {"count": 0})).id) == []


async def test_U4_rejected_items_raise_or_stand_in_their_place(store_url: str) -> None:
    """U4."""
    app, _ = an_app()
    async with world(app, store_url) as there:
        for options, result in [
            ({}, {"rejected": [[1, "no"]]}),
            ({"keep_rejected": True}, [0, "rejected: no", 20]),
        ]:
            run = await there.start("each", options)
            for request in there.sent("provider")[-3:]:
                if request.item == 1:
                    await there.reply(request, error="no")
                else:
                    await there.reply(request, request.data * 10)
            assert await there.result(run.id) == result


@pytest.mark.parametrize(
    ("policy", "result"), [("fail", "timed out"), ("reject", [0, "rejected: timed out", "rejected: timed out"])]
)
async def test_U4_items_that_are_not_answered_in_time(store_url: str, policy: str, result: Any) -> None:
    """U4 (catalogue 3.6, 8): what a timeout means is the author's choice."""
    app, _ = an_app()
    async with world(app, store_url) as there:
        run = await there.start("each", {"on_item_timeout": policy, "keep_rejected": True})
        await there.reply(there.sent("provider")[0], 0)
        await there.advance("61m")
        assert await there.result(run.id) == result


async def test_U5_more_items_than_one_commit_carries_survive_a_crash_between_two(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U5: items are written in chunks; the rest follows after a crash."""
    for module in ("requests", "turn"):
        monkeypatch.setattr(f"bide.authoring.workflow.{module}.ITEMS_AT_ONCE", 4)
    app, _ = an_app()
    async with world(app, store_url) as there:
        run = await there.start("each", {"count": 11}, settle=False)
        await there.crash()
        await there.settle()
        requests = {request.item: request for request in there.sent("provider")}
        assert sorted(requests) == list(range(11))
        for request in requests.values():
            await there.reply(request, request.data)
        assert await there.result(run.id) == list(range(11))


# ---------------------------------------------------------------- dispatch


async def test_U7_what_could_not_be_sent_is_sent_again_with_the_same_ids(store_url: str) -> None:
    """U7 (catalogue 3.6, 3)."""
    app, provider = an_app()
    async with world(app, store_url, live=["provider"]) as there:
        provider.results = [Undelivered("broker away"), Undelivered("broker away")]
        run = await there.start("one", {})
        await there.advance("1m")
        assert [request.interaction_id for request in provider.seen] == [provider.seen[0].interaction_id] * 3
        assert len({request.correlation_id for request in provider.seen}) == 1
        await there.reply(provider.seen[-1], {"amount": 5})
        assert await there.result(run.id) == 5


async def test_U7_what_can_never_be_sent_is_a_dead_letter_and_holds_up_no_other(store_url: str) -> None:
    """U7: an item of its own; a retry sends it."""
    app, provider = an_app()
    async with world(app, store_url, live=["provider"]) as there:
        provider.results = [Sent(), Undelivered("no such account", retry=False), Sent()]
        run = await there.start("each", {})
        for request in list(provider.seen):
            if request.item != 1:
                await there.reply(request, request.data)
        [letter] = await there.dead_letters()
        assert (letter.kind, letter.error, letter.run_id) == ("dispatch", "no such account", run.id)
        await there.retry_dead_letter(letter.id)
        await there.settle()
        assert [request.item for request in provider.seen] == [0, 1, 2, 1]
        await there.reply(provider.seen[-1], 1)
        assert await there.result(run.id) == [0, 1, 2]


async def test_a_destination_that_always_fails_ends_as_one_dead_letter(store_url: str) -> None:
    """F100: with growing pauses."""
    app, provider = an_app()
    async with world(app, store_url, live=["provider"]) as there:
        provider.results = [Undelivered("down")] * 1000
        run = await there.start("each", {"timeout": "30d"})
        await there.advance("1d")
        [letter] = await there.dead_letters()
        assert letter.error.endswith("provider: down")
        provider.results = []
        await there.retry_dead_letter(letter.id)
        await there.settle()
        for request in provider.seen[-3:]:
            await there.reply(request, request.data)
        assert await there.result(run.id) == [0, 1, 2]


async def test_an_item_whose_dead_letter_is_discarded_is_rejected(store_url: str) -> None:
    """D6, U7: as if the outside had declined it, in the same commit; the run waits for nobody."""
    app, provider = an_app()
    async with world(app, store_url, live=["provider"]) as there:
        provider.results = [Sent(), Undelivered("no such account", retry=False), Sent()]
        run = await there.start("each", {"timeout": "forever", "keep_rejected": True})
        [letter] = await there.dead_letters()
        await there.discard_dead_letter(letter.id)
        assert (await there.get(run.id)).status == "waiting"
        for request in (provider.seen[0], provider.seen[2]):
            await there.reply(request, request.data)
        assert await there.result(run.id) == [0, "rejected: it could not be sent: no such account", 2]
        assert (await there.reply(provider.seen[1], 1)).outcome == "late"
        entries = await there.ledger(run.id)
        at = [entry.name for entry in entries].index("chore_discarded")
        assert (entries[at].data["declined"], entries[at + 1].name) == (1, "await_unit_item_rejected")
        assert (len(provider.seen), await there.runtime.store.audit()) == (3, [])


async def test_all_items_of_a_dead_letter_that_is_discarded_are_rejected(store_url: str) -> None:
    """D6, U7, F100: of a destination that takes nothing, all that nobody has answered."""
    app, provider = an_app()
    async with world(app, store_url, live=["provider"]) as there:
        provider.results = [Undelivered("down")] * 1000
        run = await there.start("each", {"timeout": "forever", "keep_rejected": True})
        await there.advance("1d")
        [letter] = await there.dead_letters()
        await there.reply(provider.seen[1], 7)
        await there.discard_dead_letter(letter.id)
        declined = f"rejected: it could not be sent: {letter.error}"
        assert await there.result(run.id) == [declined, 7, declined]
        assert await there.dead_letters() == []
        assert await there.runtime.store.audit() == []


@pytest.mark.parametrize("retry", [False, True])
async def test_a_request_whose_dead_letter_is_discarded_fails_its_wait(store_url: str, retry: bool) -> None:
    """D6, U7, W13: there is nothing else to wait for."""
    app, provider = an_app()
    async with world(app, store_url, live=["provider"]) as there:
        provider.results = [Undelivered("down", retry=retry)] * 1000
        run = await there.start("one", {"timeout": "forever"})
        await there.advance("1d")
        [letter] = await there.dead_letters()
        await there.discard_dead_letter(letter.id)
        info = await there.get(run.id)
        assert (info.status, letter.error in str(info.error)) == ("failed", True)
        [row] = await there.interactions(run_id=run.id, status=None)
        assert (row.status, row.reason) == ("failed", f"it could not be sent: {letter.error}")
        with pytest.raises(bide.DeadLetterNotFound):
            await there.discard_dead_letter(letter.id)
        assert await there.runtime.store.audit() == []


async def test_a_pipeline_goes_on_without_what_a_person_gave_up_sending(store_url: str) -> None:
    """D6, U7, U15: those behind it, that had no room yet, were to be sent by the same dispatch."""
    app, provider = an_app()
    async with world(app, store_url, live=["provider"]) as there:
        provider.results = [Undelivered("down")] * 1000
        run = await there.start("lasting", 5)
        await there.advance("1d")
        [letter] = await there.dead_letters()
        await there.discard_dead_letter(letter.id)
        assert await there.result(run.id) == []
        assert (await there.progress(run.id)).rejected == 5
        assert await there.runtime.store.audit() == []


async def test_what_was_asked_after_a_person_looked_is_not_given_up_with_the_rest(store_url: str) -> None:
    """D6, U7: a discard is about what the dead letter was about; what came behind it is sent."""
    app, provider = an_app()
    async with world(app, store_url, live=["provider"]) as there:
        provider.results = [Undelivered("down")] * 1000
        run = await there.start("each", {"timeout": "forever", "keep_rejected": True})
        await there.advance("1d")
        [letter] = await there.dead_letters()
        provider.results = []
        [wait] = await there.waits(run_id=run.id)
        no = int(wait.id.rpartition("_")[2])
        await there.runtime.committer.submit(
            SettleDeadLetter(
                workspace="default", run_id=RunId(run.id), id=letter.id, action="discard", no=no, items=(0,)
            )
        )
        await there.settle()
        for request in provider.seen[-2:]:
            await there.reply(request, request.data)
        assert await there.result(run.id) == [f"rejected: it could not be sent: {letter.error}", 1, 2]


async def test_U9_an_answer_can_come_with_the_sending(store_url: str) -> None:
    """U9: as in the response of a webhook; one that does not fit leaves the wait open."""
    app, provider = an_app()
    async with world(app, store_url, live=["provider"]) as there:
        provider.results = [Answered({"amount": 3})]
        assert await there.result((await there.start("one", {})).id) == 3
        provider.results = [Answered("rubbish")]
        run = await there.start("one", {})
        assert run.status == "waiting"
        await there.reply(provider.seen[-1], {"amount": 4})
        assert await there.result(run.id) == 4


async def test_nothing_is_sent_for_a_wait_that_is_over(store_url: str) -> None:
    """F102 (catalogue 3.6, 4): cancelling ends interactions too."""
    app, provider = an_app()
    async with world(app, store_url, live=["provider"]) as there:
        provider.results = [Undelivered("later")]
        run = await there.start("one", {})
        await there.cancel(run.id)
        await there.advance("1h")
        assert len(provider.seen) == 1
        [row] = await there.interactions(run_id=run.id, status="cancelled")
        assert row.status == "cancelled"
        receipt = await there.reply(provider.seen[0], {"amount": 1})
        assert (receipt.outcome, receipt.reason) == ("no_target", "cancelled")


async def test_U15_at_most_so_many_are_unanswered_at_once(store_url: str) -> None:
    """U15: further items wait their turn, durably."""
    app, _ = an_app()
    async with world(app, store_url) as there:
        run = await there.start("items", 5)
        for answered in range(5):
            assert len(there.sent("provider")) == min(5, answered + 2)
            await there.crash()
            await there.reply(there.sent("provider")[answered], answered)
        assert await there.result(run.id) == [0, 1, 2, 3, 4]
        assert [request.item for request in there.sent("provider")] == [0, 1, 2, 3, 4]


async def test_a_transport_that_is_not_registered_is_refused_where_it_is_used(store_url: str) -> None:
    app, _ = an_app()
    async with world(app, store_url) as there:
        run = await there.start("one", {"transport": "pigeon"})
        info = await there.get(run.id)
        assert info.error is not None
        assert "transport 'pigeon' is not registered" in info.error.message
    with pytest.raises(bide.BadDefinition, match="another transport is registered as 'provider'"):
        app.transport(Provider())
    with pytest.raises(bide.BadDefinition, match="no transport"):
        app.transport(object())  # type: ignore[type-var]


# ---------------------------------------------------------------- admission


async def admitted(there: World, **answer: Any) -> tuple[str, str | None]:
    [receipt] = await Admitting(there.runtime, "provider").admit([Answer(**answer)])
    return receipt.outcome, receipt.reason


async def test_W7_foreign_unknown_and_forged_replies_are_refused_each_with_its_reason(store_url: str) -> None:
    """W7, law 8 (catalogue 3.6, 5 and 6): counted under its reason; the wait stays open."""
    app, _ = an_app()
    async with world(app, store_url) as there:
        run = await there.start("one", {})
        [request] = there.sent("provider")
        id, data = request.interaction_id, {"amount": 1}
        assert await admitted(there, interaction_id="int_nothing_1_0", data=data) == ("no_target", "not_found")
        assert await admitted(there, interaction_id="rubbish", data=data) == ("no_target", "not_found")
        assert await admitted(there, interaction_id=f"{id}9", data=data) == ("no_target", "not_found")
        assert await admitted(there, correlation_id="cor_x", data=data) == ("no_target", "not_found")
        forged = request.correlation_id[:-1] + ("0" if request.correlation_id[-1] != "0" else "1")
        for forgery in (forged, f"{request.correlation_id}é"):
            assert await admitted(there, correlation_id=forgery, data=data) == ("no_target", "bad_token")
        foreign = await admitted(there, interaction_id=id, workspace="other", data=data)
        assert foreign == ("no_target", "wrong_workspace")
        assert (await there.get(run.id)).status == "waiting"
        assert (await admitted(there, correlation_id=request.correlation_id, data=data))[0] == "woke"
        assert await there.result(run.id) == 1
        counts = {label: n for (name, label), n in there.runtime.counts.items() if name.endswith("dropped_total")}
        assert counts == {"not_found": 4, "bad_token": 2, "wrong_workspace": 1}


async def test_U6_answers_that_are_handed_in_together_are_judged_each_for_itself(store_url: str) -> None:
    """U6, U8, W3, W7: twice in one batch is a duplicate, another one a conflict, a misfit leaves its item open, and the
    one that was the last wakes the run."""
    app, _ = an_app()
    async with world(app, store_url) as there:
        run = await there.start("each", {"count": 4, "keep_rejected": True})
        ids = [request.interaction_id for request in there.sent("provider")]
        batch = [
            Answer(interaction_id=ids[2], data=30),
            Answer(interaction_id=ids[2], data=30),
            Answer(interaction_id=ids[2], data=31),
            Answer(interaction_id=ids[0], data="many"),
            Answer(interaction_id=ids[1], reason="closed"),
            Answer(interaction_id=ids[1], reason="closed"),
            Answer(interaction_id=ids[0] + "99", data=1),
            Answer(interaction_id=ids[0], data=10),
        ]
        receipts = await Admitting(there.runtime, "provider").admit(batch)
        outcomes = [receipt.outcome for receipt in receipts]
        assert outcomes == ["queued", "duplicate", "conflict", "invalid", "queued", "duplicate", "no_target", "queued"]
        again = await Admitting(there.runtime, "provider").admit([batch[0], Answer(interaction_id=ids[3], data=40)])
        assert [receipt.outcome for receipt in again] == ["duplicate", "woke"]
        assert await there.result(run.id) == [10, "rejected: closed", 30, 40]
        names = await ledger_names(there, run.id)
        assert names.count("await_unit_item_completed") == 3
        assert names.count("await_unit_item_rejected") == 1
        assert names.count("await_unit_completed") == 1


async def test_U9_people_and_programs_answer_items_that_are_only_listed(store_url: str) -> None:
    """U9, U14: the transport `interaction-api`."""
    app = bide.App("inbox")
    pipeline = (
        app.pipeline("reviews")
        .expand(range)
        .wait_external("review", transport="interaction-api", timeout="1d", returns=bool, channel="desk")
        .collect(list)
    )
    async with world(app, store_url) as there:
        run = await there.start(pipeline, 3)
        rows = await there.interactions(run_id=run.id)
        assert [(row.item, row.status, row.payload, row.channel) for row in rows] == [
            (0, "waiting", 0, "desk"),
            (1, "waiting", 1, "desk"),
            (2, "waiting", 2, "desk"),
        ]
        for row in rows:
            await there.answer(row.id, row.item == 1, by="ann")
        assert await there.result(run.id) == [False, True, False]
        assert {row.answered_by for row in await there.interactions(run_id=run.id, status="completed")} == {"ann"}


async def test_U4_two_waits_in_one_stream_each_get_every_item_that_comes_to_them(store_url: str) -> None:
    """U4: an item goes on to the next wait while others are still at the first."""
    app, provider = bide.App("two"), Provider()
    pipeline = (
        app.pipeline("two")
        .expand(range)
        .wait_external("first", transport=provider, timeout="1h")
        .filter(lambda n: n != 1)
        .wait_external("second", transport="provider", timeout="1h")
        .collect(list)
    )
    async with world(app, store_url) as there:
        run = await there.start(pipeline, 3)
        sent = there.sent("provider")
        await there.reply(sent[2], 2)
        assert [(request.step, request.item) for request in sent[3:]] == [("second", 2)]
        await there.reply(sent[3], "c")
        await there.reply(sent[0], 0)
        await there.reply(sent[1], 1)
        await there.reply(sent[4], "a")
        assert await there.result(run.id) == ["a", "c"]


async def test_U4_answered_items_are_handed_to_who_brings_the_answers_and_found_if_it_dies(
    store_url: str,
) -> None:
    """U4, D6: with the commit of the answers, as far as there is room; the lease ends as that of any claim."""
    app = bide.App("handed")
    pipeline = (
        app.pipeline("handed")
        .expand(range)
        .wait_external("ask", transport=Provider(), timeout="1h")
        .map(lambda number: number * 2)
        .collect(list)
    )
    async with world(app, store_url) as there:
        run = await there.start(pipeline, 3)
        given = [
            Given(item=request.item, target=request.interaction_id, message_id=f"m{request.item}", data="7", digest="d")
            for request in there.sent("provider")
        ]
        offer = ItemOffer(
            lease=timedelta(seconds=30), room=2, queues=frozenset({"default"}), definitions=frozenset({"handed"})
        )
        command = TakeIn(workspace="default", run_id=RunId(run.id), no=1, given=tuple(given), offer=offer)
        taken = (await there.runtime.committer.submit(command)).reply
        assert isinstance(taken, TakenIn)
        assert [(item.item, item.epoch, item.claims) for item in taken.items] == [(0, 1, 1), (1, 1, 1)]
        await there.settle()  # nobody begins what was handed over: as if that process had died
        assert (await there.progress(run.id)).done == 1
        await there.advance("30s")
        assert await there.result(run.id) == [14, 14, 14]
        assert await there.runtime.store.audit() == []


@pytest.mark.parametrize(
    "other", [{"queues": frozenset({"slow"})}, {"definitions": frozenset({"another"})}, {"room": 0}]
)
async def test_U4_items_are_not_handed_to_a_process_that_does_not_serve_them(
    store_url: str, other: dict[str, Any]
) -> None:
    """U4, F18: of another queue, of a definition that it does not know, or without room."""
    app = bide.App("handed")
    pipeline = (
        app.pipeline("handed")
        .expand(range)
        .wait_external("ask", transport=Provider(), timeout="1h")
        .map(lambda number: number * 2)
        .collect(list)
    )
    async with world(app, store_url) as there:
        run = await there.start(pipeline, 1)
        [request] = there.sent("provider")
        serves: dict[str, Any] = {"queues": frozenset({"default"}), "definitions": frozenset({"handed"}), "room": 9}
        offer = ItemOffer(lease=timedelta(seconds=30), **{**serves, **other})
        given = Given(item=0, target=request.interaction_id, message_id="m", data="7", digest="d")
        command = TakeIn(workspace="default", run_id=RunId(run.id), no=1, given=(given,), offer=offer)
        taken = (await there.runtime.committer.submit(command)).reply
        assert isinstance(taken, TakenIn)
        assert taken.items == ()
        assert await there.result(run.id) == [14]


async def test_progress_is_told_in_counts(store_url: str) -> None:
    """How far the items have come, for bars and lists."""
    app, _ = an_app()
    async with world(app, store_url) as there:
        run = await there.start("items", 5)
        await there.reply(there.sent("provider")[0], 0)
        await there.reply(there.sent("provider")[1], error="no")
        progress = await there.progress(run.id)
        assert (progress.expected, progress.dispatched, progress.answered) == (5, 4, 2)
        assert (progress.done, progress.rejected, progress.is_filled) == (1, 1, True)
        for request in there.sent("provider")[2:4]:
            await there.reply(request, 1)
        await there.reply(there.sent("provider")[4], 1)
        assert (await there.get(run.id)).status == "completed"
        assert (await there.progress(run.id)).done == 4  # told after the end, too
        other = await there.start("each", {})
        assert (await there.progress(other.id)).dispatched == 3


async def test_U4_one_item_is_failed_from_outside_and_the_others_go_on(store_url: str) -> None:
    """U4, W13: `…/fail` with a reason for one item, over HTTP and by the client; said again, it is no news."""
    app, _ = an_app()
    (
        app.pipeline("declining", retries=0)
        .expand(range)
        .wait_external("ask", transport="provider", timeout="1h")
        .collect(lambda rows: {"items": list(rows), "rejected": [[bad.item, bad.reason] for bad in rows.rejected]})
    )
    async with world(app, store_url) as there, there.http() as http:
        run = await there.start("declining", 4)
        first, second, *others = there.sent("provider")
        failed = await http.post(f"/v1/interactions/{first.interaction_id}/fail", json={"reason": "no funds"})
        again = await http.post(f"/v1/interactions/{first.interaction_id}/fail", json={"reason": "no funds"})
        other = await http.post(f"/v1/interactions/{first.interaction_id}/fail", json={"reason": "no money"})
        assert [response.status_code for response in (failed, again, other)] == [200, 200, 410]
        assert (failed.json()["status"], failed.json()["reason"]) == ("failed", "no funds")
        await there.fail_wait(second.interaction_id, "account closed")
        assert (await there.reply(second, 1)).outcome == "late"
        assert (await there.get(run.id)).status == "waiting"
        for request in others:
            await there.reply(request, request.data)
        answered = await http.post(f"/v1/interactions/{others[0].interaction_id}/fail", json={"reason": "too late"})
        assert answered.status_code == 410
        result = await there.result(run.id)
        assert result == {"items": [2, 3], "rejected": [[0, "no funds"], [1, "account closed"]]}
        listed = await there.interactions(run_id=run.id, status=None)
        assert [row.reason for row in listed] == ["no funds", "account closed", None, None]
        assert all(row.deadline is not None for row in listed)


async def test_F11_one_item_of_a_workflow_is_failed_from_outside(store_url: str) -> None:
    """F11, W13."""
    app, _ = an_app()
    async with world(app, store_url) as there:
        run = await there.start("each", {"keep_rejected": True})
        first, *others = there.sent("provider")
        await there.fail_wait(first.interaction_id, "no funds")
        for request in others:
            await there.reply(request, 1)
        assert await there.result(run.id) == ["rejected: no funds", 1, 1]


@pytest.mark.parametrize(("how", "code"), [("fail_wait", "WaitFailed"), ("cancel_wait", "WaitCancelled")])
async def test_W10_a_pipeline_whose_whole_wait_is_ended_by_an_operator_fails(
    store_url: str, how: str, code: str
) -> None:
    """W10, W2: it does not go on with what there is of its items."""
    app, _ = an_app()
    async with world(app, store_url) as there:
        run = await there.start("items", 3)
        await there.reply(there.sent("provider")[0], 7)
        [wait] = await there.waits(run_id=run.id)
        await getattr(there, how)(wait.id, "the provider is gone")
        info = await there.get(run.id)
        assert (info.status, str(info.error)) == ("failed", f"{code}: the provider is gone")
        assert await there.runtime.store.audit() == []


async def test_W10_an_operator_gives_all_items_of_a_wait_more_time(store_url: str) -> None:
    """W10, U4: each item has its time, and what it means that it is over is the wait's own."""
    app, _ = an_app()
    async with world(app, store_url) as there:
        run = await there.start("each", {"on_item_timeout": "reject", "keep_rejected": True})
        [wait] = await there.waits(run_id=run.id)
        moved = await there.update_wait(wait.id, deadline="3h", reason="the provider is slow")
        assert moved.deadline is not None
        await there.advance("2h")
        await there.reply(there.sent("provider")[0], 0)
        await there.advance("2h")
        assert await there.result(run.id) == [0, "rejected: timed out", "rejected: timed out"]


async def test_U9_the_resume_url_of_a_request_takes_its_answer(store_url: str) -> None:
    """U9, W4: the link that a transport sends along answers this interaction, and it alone."""
    app, _ = an_app()
    async with world(app, store_url) as there, there.http() as http:
        run = await there.start("each", {"count": 2})
        first, second = there.sent("provider")
        assert first.resume_url is not None
        assert second.resume_url is not None
        path = first.resume_url.partition("/resume/")[2]
        assert (await http.get(f"/resume/{path}")).status_code == 200
        assert (await http.post(f"/resume/{path}", json="much")).status_code == 422
        assert (await http.post(f"/resume/{path}", json=7)).status_code == 200
        assert (await http.post(f"/resume/{path}", json=7)).status_code == 200
        assert (await http.post(f"/resume/{path}", json=8)).status_code == 410
        assert (await there.get(run.id)).status == "waiting"
        await http.post(f"/resume/{second.resume_url.partition('/resume/')[2]}", json=9)
        assert await there.result(run.id) == [7, 9]


async def test_U4_a_worker_that_is_killed_again_and_again_loses_no_item_and_doubles_none(store_url: str) -> None:
    """U4, U5: in the middle of many items; the rest is done, and nothing stands twice in the ledger."""
    count = 1000

    class AtOnce:
        name = "at-once"

        async def dispatch(self, requests: Sequence[Request]) -> Sequence[Dispatched]:
            return [Answered(request.data) for request in requests]

    app = bide.App("killed")
    pipeline = (
        app.pipeline("killed")
        .expand(range)
        .wait_external("ask", transport=AtOnce(), timeout="1h")
        .map(lambda number: number + 1, name="work")
        .collect(list)
    )
    async with world(app, store_url, live=["at-once"], max_claims=20) as there:
        for point in ("before", "after_code", "after_commit") * 3:
            there.crash_at("work", point)
        there.crash_at("range", "after_commit")
        run = await there.start(pipeline, count)
        assert await there.result(run.id) == list(range(1, count + 1))
        entries = await there.ledger(run.id)
    answered = [entry.data["item"] for entry in entries if entry.name == "await_unit_item_completed"]
    ended = [item for entry in entries if entry.name == "items_committed" for item in entry.data.get("done", ())]
    assert sorted(answered) == sorted(ended) == list(range(count))
