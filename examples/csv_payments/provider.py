"""The payment provider: a program of its own that knows nothing of bide but the headers of a request.

Answers some late, some twice, and rejects some. Runs until it is told to stop.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import os
import signal
import time
from typing import Any

from confluent_kafka import Consumer, Producer

REQUESTS = "csv-payments.payment.requests"
LATE_SECONDS = 1.0


def main() -> None:
    servers = os.environ["BIDE_KAFKA_SERVERS"]
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "payment-provider",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        }
    )
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    consumer.subscribe([REQUESTS])
    late: list[tuple[float, int, Any]] = []
    seen = 0
    while not stopping:
        for message in consumer.consume(500, timeout=0.05):
            if message.error() is not None:
                continue
            seen += 1
            luck = int.from_bytes(hashlib.sha256(message.key() or b"").digest()[:2], "big") % 100
            if luck < 5:
                heapq.heappush(late, (time.monotonic() + LATE_SECONDS, seen, message))
                continue
            for _ in range(2 if luck < 15 else 1):
                reply(producer, message, luck)
        while late and late[0][0] <= time.monotonic():
            reply(producer, heapq.heappop(late)[2], 0)
        producer.poll(0)
    producer.flush(10)
    consumer.close()


def reply(producer: Producer, message: Any, luck: int) -> None:
    headers = dict(message.headers())
    payment = json.loads(message.value())["data"]
    if luck >= 92:
        body: dict[str, Any] = {"error": {"reason": "the account is closed"}}
    else:
        body = {"data": {"id": payment["id"], "status": "paid", "fee": payment["amount"] // 100}}
    while True:
        try:
            producer.produce(
                headers["bide-reply-topic"].decode(),
                key=message.key(),
                value=json.dumps(body).encode(),
                headers={"bide-correlation": headers["bide-correlation"]},
            )
            return
        except BufferError:
            producer.poll(0.1)


if __name__ == "__main__":
    main()
