"""Kafka: requests and replies over a broker, with duplicates, disorder, rebalances, poison and an outage (U9)."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bide
from bide.engine.admission import Admitting
from bide.transports.kafka import read_reply
from tests.support.kafka import Broker, broker
from tests.support.staging import until
from tests.transports.provider import QUICK, Provider

ITEMS = int(os.environ.get("BIDE_TEST_KAFKA_ITEMS", "1500"))  # 20000 for the figure of the documentation
GUESTS = 4 if ITEMS < 5000 else 20


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    with broker() as made:
        yield made


def an_app(kafka: Broker, name: str, folder: Path, **config: Any) -> tuple[bide.App, bide.Kafka, bide.Pipeline]:
    for topic in (f"{name}.requests", f"{name}.replies", f"{name}.replies.dead-letters"):
        kafka.create(topic, 4)
    transport = bide.Kafka(
        requests=f"{name}.requests",
        replies=f"{name}.replies",
        servers=kafka.servers,
        config={"log_level": 0, **QUICK, **config},
    )
    app = bide.App(name, store=f"sqlite:///{folder}/{name}.db")
    pipeline = (
        app.pipeline("squares")
        .expand(range)
        .wait_external("square", transport=transport, timeout="10m", returns=int)
        .collect(lambda items: [list(items), [bad.item for bad in items.rejected]])
    )
    return app, transport, pipeline


def square(number: int) -> Any:
    return ValueError("unlucky") if number == 13 else number * number


async def test_U9_each_reply_completes_its_item_once_whatever_the_broker_does(kafka: Broker, tmp_path: Path) -> None:
    """U9, F104, F108, F113: a fifth comes twice, none in order, and consumers join and leave all the while."""
    app, transport, pipeline = an_app(kafka, "squares", tmp_path)
    provider = Provider(kafka.servers, "squares.requests", square, twice=0.2)
    provider.start()

    async def come_and_go(runtime: Any) -> None:
        # So many and no more: a busy machine may need longer for a rebalance than the next one is away.
        for _ in range(GUESTS):
            guest = asyncio.create_task(transport.listen(Admitting(runtime, "kafka")))
            await asyncio.sleep(2)
            guest.cancel()
            await asyncio.wait({guest})

    try:
        async with app.engine():
            rebalancing = asyncio.create_task(come_and_go(await app.runtime()))
            run = await app.client().start(pipeline, ITEMS)
            numbers, rejected = await run.result(timeout="5m" if ITEMS < 5000 else "10m")
            rebalancing.cancel()
            await asyncio.wait({rebalancing})
            entries = await app.client().ledger(run.id)
            counts = Counter[str]()
            for (name, _), n in (await app.runtime()).counts.items():
                counts[name] += n  # whatever came of it: the last one wakes the run
    finally:
        provider.stop()
    assert numbers == [number * number for number in range(ITEMS) if number != 13]
    assert rejected == [13]
    ended = Counter(e.data["item"] for e in entries if e.name.startswith("await_unit_item_"))
    assert ended == Counter(range(ITEMS))
    assert provider.answered > ITEMS
    assert counts["bide_await_completions_admitted_total"] == ITEMS


async def test_U9_a_poison_record_goes_to_the_dead_letters_and_the_partition_goes_on(
    kafka: Broker, tmp_path: Path
) -> None:
    """U9, F106, F107."""
    from confluent_kafka import Consumer, Producer

    # Each record is counted once: who reads is late at times, and must not be taken for dead before it has committed.
    app, _, pipeline = an_app(kafka, "poison", tmp_path, **{"session.timeout.ms": 30_000})
    producer = Producer({"bootstrap.servers": kafka.servers})
    unknown: dict[str, str | bytes | None] = {"bide-interaction": b"int_x_1_0"}
    dropped = ("bide_await_completion_dropped_total", "not_found")
    for partition in range(4):
        producer.produce("poison.replies", value=b"\xff not json", headers=unknown, partition=partition)
        producer.produce("poison.replies", value=b'{"data": 1}', partition=partition)
        producer.produce("poison.replies", value=b'{"data": 1}', headers=unknown, partition=partition)
    producer.flush(10)
    provider = Provider(kafka.servers, "poison.requests", square)
    provider.start()
    try:
        async with app.engine():
            run = await app.client().start(pipeline, 20)
            numbers, _ = await run.result(timeout="5m")
            counts = (await app.runtime()).counts

            async def are_all_read() -> bool:
                return len(await app.client().dead_letters()) == 8 and counts[dropped] == 4

            await until(are_all_read)  # no reply may have gone to one of the partitions: nobody waited for it so far
            letters = await app.client().dead_letters()
    finally:
        provider.stop()
    assert len(numbers) == 19
    assert len(letters) == 8
    assert {letter.kind for letter in letters} == {"poison"}
    assert counts[dropped] == 4
    reader = Consumer(
        {"bootstrap.servers": kafka.servers, "group.id": "looking", "auto.offset.reset": "earliest", **QUICK}
    )
    reader.subscribe(["poison.replies.dead-letters"])
    buried: list[Any] = []
    for _ in range(600):
        buried += [message for message in reader.consume(100, timeout=0.2) if message.error() is None]
        if len(buried) >= 8:
            break
    reader.close()
    assert len(buried) == 8
    assert all(dict(message.headers())["bide-reason"] for message in buried)


async def test_U7_a_broker_that_is_away_for_a_while_loses_nothing(kafka: Broker, tmp_path: Path) -> None:
    """U7, F111: the park is not affected; what could not be sent is sent when it is back."""
    if kafka.name.startswith("the broker of"):
        pytest.skip("a broker that was there before is not taken down")
    app, _, pipeline = an_app(kafka, "outage", tmp_path)
    provider = Provider(kafka.servers, "outage.requests", square)
    provider.start()
    try:
        async with app.engine():
            assert (await (await app.client().start(pipeline, 5)).result(timeout="5m"))[0] == [0, 1, 4, 9, 16]
            kafka.down()
            run = await app.client().start(pipeline, 30)

            async def is_parked() -> bool:
                return (await run.refresh()).status == "waiting"

            await until(is_parked)
            await asyncio.sleep(1)  # meanwhile it is tried in vain
            assert await is_parked()
            kafka.up()
            numbers, _ = await run.result(timeout="5m")
    finally:
        provider.stop()
    assert len(numbers) == 29


def test_what_is_no_reply_is_told_apart() -> None:
    """F107: malformed, without headers, with both or neither of data and error."""
    ours = [("bide-interaction", b"int_7_1_0"), ("other", b"\xff")]
    assert getattr(read_reply(ours, b'{"data": null}'), "data", "missing") is None
    assert getattr(read_reply(ours, b'{"error": {"reason": "closed"}}'), "reason", None) == "closed"
    for headers, value in [
        (None, b'{"data": 1}'),
        ([("bide-interaction", b"\xff")], b'{"data": 1}'),
        (ours, None),
        (ours, b""),
        (ours, b"[1]"),
        (ours, b'{"data": 1, "error": {"reason": "x"}}'),
        (ours, b'{"error": {}}'),
        (ours, b'{"data": 1, "data": 2}'),
        (ours, b'{"data": NaN}'),
    ]:
        assert isinstance(read_reply(headers, value), str), (headers, value)


@pytest.mark.parametrize("topic", ["", "two words", "x" * 250, "sch\u00f6n/er"])
def test_names_that_are_no_topics_are_refused(topic: str) -> None:
    with pytest.raises(bide.BadConfiguration, match="no name of a Kafka topic"):
        bide.Kafka(requests=topic, replies="replies")


async def test_a_transport_without_brokers_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BIDE_KAFKA_SERVERS", raising=False)
    with pytest.raises(bide.BadConfiguration, match="BIDE_KAFKA_SERVERS"):
        bide.Kafka(requests="a", replies="b")._brokers()
