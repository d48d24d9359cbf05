"""Checkpoints: one pipeline publishes, others admit it as work of their own, once for each key (U12)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import bide
from bide.engine.handing_over import Handoffs
from bide.testing import World, world
from tests.support.worlds import ledger_names


class Paid(msgspec.Struct):
    id: int
    amount: int = 5


def paid(count: int) -> list[Paid]:
    return [Paid(number) for number in range(count)]


def key_of(payment: Any) -> str:
    return f"payment:{payment['id'] if isinstance(payment, dict) else payment.id}"


def shop(**publish: Any) -> bide.App:
    """One pipeline that pays, and one that books what was paid."""
    app = bide.App()
    app.pipeline("pay").expand(paid).publish("paid", **publish).map(lambda payment: payment.id).collect(list)
    app.pipeline("book").admit("paid").map(lambda payment: payment["amount"] * 2)
    return app


async def booked(there: World) -> list[Any]:
    """The inputs of the runs that were admitted, in the order of their keys."""
    runs = await there.runs(definition="book")
    assert {run.status for run in runs} <= {"completed"}
    return sorted(run.tags["key"] for run in runs)


async def test_U12_what_one_pipeline_publishes_between_two_stages_is_a_run_of_another(store_url: str) -> None:
    """U12: the items go on unchanged; each checkpoint is independent work."""
    async with world(shop(key=key_of), store_url) as there:
        run = await there.start("pay", 3)
        assert await there.result(run.id) == [0, 1, 2]
        assert await booked(there) == ["payment:0", "payment:1", "payment:2"]
        published = [entry.data for entry in await there.ledger(run.id) if entry.name == "checkpoint_published"]
        assert sorted(item for data in published for item in data["items"]) == [0, 1, 2]
        [admitted] = await there.runs(definition="book", tags={"key": "payment:1"})
        assert await there.result(admitted.id) == 10
        entries = {entry.name: entry.data for entry in await there.ledger(admitted.id)}
        assert entries["checkpoint_admitted"]["published_by"] == run.id
        assert entries["checkpoint_admitted"]["checkpoint"] == "paid"


async def test_U12_the_one_thing_that_comes_last_is_a_checkpoint_too(store_url: str) -> None:
    """U12, U13: a publish as the last stage gives what came in."""
    app = bide.App()
    app.pipeline("sum").expand(range).collect(sum).publish("summed")
    app.pipeline("report").admit("summed").map(lambda total: f"{total} in all")
    async with world(app, store_url) as there:
        run = await there.start("sum", 4)
        assert await there.result(run.id) == 6
        [report] = await there.runs(definition="report")
        assert await there.result(report.id) == "6 in all"
        assert report.tags == {"checkpoint": "summed", "key": f"{run.id}:publish summed"}


async def test_U12_a_key_is_admitted_once_whichever_run_publishes_it(store_url: str) -> None:
    """U12: deduplicated by key; without one each run counts for itself."""
    async with world(shop(key=key_of), store_url) as there:
        await there.start("pay", 2)
        second = await there.start("pay", 3)
        assert await booked(there) == ["payment:0", "payment:1", "payment:2"]
        handed = [e.data for e in await there.ledger(second.id) if e.name == "checkpoint_handed_over"]
        assert sum(data["started"] for data in handed) <= 1  # its run may have ended before the last was handed over
    async with world(shop(), store_url) as there:
        await there.start("pay", 2)
        await there.start("pay", 2)
        assert len(await booked(there)) == 4


async def test_a_checkpoint_reaches_every_pipeline_that_admits_it(store_url: str) -> None:
    app = shop(key=key_of)
    app.pipeline("mail").admit("paid").map(lambda payment: payment["id"])
    async with world(app, store_url) as there:
        await there.start("pay", 2)
        assert len(await booked(there)) == 2
        assert {await there.result(run.id) for run in await there.runs(definition="mail")} == {0, 1}


POINTS = [
    *((stage, point) for stage in ("publish paid", "map") for point in ("before", "after_code", "after_commit")),
    ("paid", "before"),
    ("paid", "after_commit"),
]


@pytest.mark.parametrize(("step", "point"), POINTS)
async def test_U12_a_crash_at_any_commit_hands_over_each_key_exactly_once(
    store_url: str, step: str, point: Any
) -> None:
    """U12, D6: at least once published, exactly once admitted."""
    async with world(shop(), store_url) as there:  # no key of its own: nothing but bide's own key keeps it apart
        there.crash_at(step, point)
        run = await there.start("pay", 5)
        assert await there.result(run.id) == [0, 1, 2, 3, 4]
        assert await booked(there) == [f"{run.id}:publish paid:{item}" for item in range(5)]
        assert await there.runtime.store.audit() == []


async def test_a_process_that_was_away_too_long_hands_over_nothing(store_url: str) -> None:
    """D3, F103: its lease ended, another process did it, and its own admission comes late."""
    async with world(shop(), store_url) as there:
        claim = there.runtime.store.claim_chores
        taken: list[Any] = []

        async def seen(limit: int, lease: timedelta) -> Any:
            taken.extend(found := await claim(limit, lease))
            return found

        there.runtime.store.claim_chores = seen  # type: ignore[method-assign]  # to look at what it gives
        run = await there.start("pay", 2)
        assert {chore.kind for chore in taken} == {"admit"}
        for chore in taken:
            await Handoffs(there.engine).do(chore)
        await there.settle()
        assert await booked(there) == [f"{run.id}:publish paid:{item}" for item in range(2)]


async def test_U7_a_checkpoint_that_nobody_admits_is_kept_as_a_dead_letter(store_url: str) -> None:
    """U7, U12: never lost; a retry hands it over once somebody does."""
    app = bide.App()
    app.pipeline("pay").map(lambda amount: amount).publish("paid")
    async with world(app, store_url) as there:
        run = await there.start("pay", 7)
        assert await there.result(run.id) == 7
        await there.advance("6h")
        [letter] = await there.dead_letters()
        assert (letter.kind, letter.run_id) == ("admit", run.id)
        assert "no pipeline that is registered in this process admits 'paid'" in letter.error
        app.pipeline("book").admit("paid").map(lambda amount: amount * 2)
        await there.retry_dead_letter(letter.id)
        await there.settle()
        assert await there.dead_letters() == []
        [admitted] = await there.runs(definition="book")
        assert await there.result(admitted.id) == 14


async def test_U12_what_a_pipeline_cannot_take_is_its_dead_letter_and_holds_up_no_other(store_url: str) -> None:
    """U12: dead letters of its own."""

    def book(payment: Paid) -> int:
        return payment.amount

    app = bide.App()
    app.pipeline("pay").expand(lambda rows: rows).publish("paid", key=lambda row: row["id"]).collect(len)
    app.pipeline("book").admit("paid").map(book)
    async with world(app, store_url) as there:
        run = await there.start("pay", [{"id": 1}, {"id": "two"}, {"id": 3}])
        assert await there.result(run.id) == 3
        assert await booked(there) == ["1", "3"]
        [letter] = await there.dead_letters()
        assert "does not fit its type" in letter.error
        await there.retry_dead_letter(letter.id)  # the same pipeline: the same refusal, and no second letter
        await there.settle()
        [again] = await there.dead_letters()
        assert again.id == letter.id
        await there.discard_dead_letter(letter.id)
        assert await there.dead_letters() == []
        assert await booked(there) == ["1", "3"]


async def test_U12_an_admitted_run_has_retries_of_its_own_and_the_publisher_does_not_care(store_url: str) -> None:
    """U12, seeds 003: the downstream owns retries after admission."""
    app = bide.App()
    app.pipeline("pay").map(lambda amount: amount).publish("paid")
    tries: list[int] = []

    def book(amount: int) -> int:
        tries.append(amount)
        if len(tries) < 3:
            raise RuntimeError("the ledger is closed")
        return amount

    app.pipeline("book", retries=2).admit("paid").map(book)
    async with world(app, store_url) as there:
        run = await there.start("pay", 7)
        assert (await there.get(run.id)).status == "completed"
        await there.advance("10m")
        [admitted] = await there.runs(definition="book")
        assert (admitted.status, tries) == ("completed", [7, 7, 7])


async def test_a_policy_that_denies_the_start_leaves_a_dead_letter(store_url: str) -> None:
    """G1: what a checkpoint starts is governed."""
    app = shop()

    @app.policy
    def closed(action: bide.Action) -> Any:
        return bide.Deny("the books are closed") if (action.kind, action.definition) == ("start", "book") else None

    async with world(app, store_url) as there:
        await there.start("pay", 1)
        assert await there.runs(definition="book") == []
        [letter] = await there.dead_letters()
        assert letter.error == "PolicyDenied: the books are closed"


async def test_a_key_that_is_none_is_refused_as_the_work_of_its_item(store_url: str) -> None:
    app = bide.App()
    app.pipeline("pay").expand(range).publish("paid", key=lambda number: None).collect(len)  # type: ignore[arg-type]  # wrong on purpose
    async with world(app, store_url) as there:
        await there.start("pay", 1)
        [letter] = await there.dead_letters()
        assert "the key of checkpoint 'paid' is None" in letter.error


def test_admit_comes_first_and_names_are_checked() -> None:
    app = bide.App()
    with pytest.raises(bide.BadDefinition, match="comes before the stages"):
        app.pipeline("late").map(len).admit("paid")
    with pytest.raises(bide.BadDefinition, match="checkpoint"):
        app.pipeline("empty").publish("")
    with pytest.raises(bide.BadDefinition, match="is no function"):
        app.pipeline("keyed").publish("paid", key="id")  # type: ignore[arg-type]  # wrong on purpose


TEXT = f"""
pipeline: pay
stages:
  - expand: {__name__}:paid
  - publish: paid
    key: {__name__}:key_of
  - collect: builtins:list
"""
ADMITTING = """
pipeline: book
stages:
  - admit: paid
  - map: builtins:len
"""


async def test_U11_files_publish_and_admit_as_python_does(tmp_path: Path, store_url: str) -> None:
    """U11, U12."""
    app = bide.App()
    for name, text in (("pay", TEXT), ("book", ADMITTING)):
        (tmp_path / f"{name}.yaml").write_text(text)
        app.load_pipeline(tmp_path / f"{name}.yaml")
    written = bide.Pipeline("pay").expand(paid).publish("paid", key=key_of).collect(list)
    loaded = app.registry.get("pay")
    assert isinstance(loaded, bide.Pipeline)
    assert loaded.stages == written.stages
    async with world(app, store_url) as there:
        await there.start("pay", 2)
        assert await booked(there) == ["payment:0", "payment:1"]
        assert [await there.result(run.id) for run in await there.runs(definition="book")] == [2, 2]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("key: ", "keys: "), "`publish` takes key, name"),
        (("key_of", "no_key"), "leads nowhere"),
        (("  - expand", "  - admit: paid\n    name: x\n  - expand"), "`admit` takes nothing more"),
    ],
)
def test_a_mistake_about_checkpoints_in_a_file_is_told(tmp_path: Path, change: Any, says: str) -> None:
    (tmp_path / "wrong.yaml").write_text(TEXT.replace(*change))
    with pytest.raises(bide.BadDefinition, match=says):
        bide.App().load_pipeline(tmp_path / "wrong.yaml")


async def test_the_ledger_of_a_publisher_tells_what_was_handed_over(store_url: str) -> None:
    app = bide.App()
    app.pipeline("pay").publish("paid").wait_external("bank", transport="interaction-api", timeout="1h")
    app.pipeline("book").admit("paid").map(lambda amount: amount)
    async with world(app, store_url) as there:
        run = await there.start("pay", 7)
        names = await ledger_names(there, run.id)
        assert names.count("checkpoint_published") == names.count("checkpoint_handed_over") == 1
