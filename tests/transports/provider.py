"""A provider behind Kafka: an outside actor that answers requests, not always once and not in order."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import msgspec
from confluent_kafka import Consumer, Producer

# The mock cluster answers an empty fetch only at the end of the wait: keep it short.
QUICK = {"fetch.wait.max.ms": 50, "session.timeout.ms": 6000, "heartbeat.interval.ms": 200}


class Provider(threading.Thread):
    """Answers each request with what *answer* makes of it; *twice* of them two times, in the order of dice."""

    def __init__(self, servers: str, requests: str, answer: Callable[[Any], Any], *, twice: float = 0.0) -> None:
        super().__init__(daemon=True)
        self._servers = servers
        self._requests = requests
        self._answer = answer
        self._twice = twice
        self._dice = random.Random(7)
        self._stopping = threading.Event()
        self.answered = 0

    def run(self) -> None:
        config = {"bootstrap.servers": self._servers, "group.id": "provider", "auto.offset.reset": "earliest", **QUICK}
        consumer, producer = Consumer(config), Producer({"bootstrap.servers": self._servers, "linger.ms": 5})
        consumer.subscribe([self._requests])
        try:
            while not self._stopping.is_set():
                taken = [message for message in consumer.consume(500, timeout=0.1) if message.error() is None]
                replies = [message for message in taken for _ in range(1 + (self._dice.random() < self._twice))]
                self._dice.shuffle(replies)
                for message in replies:
                    self._reply(producer, message)
                producer.flush(10)
        finally:
            consumer.close()

    def _reply(self, producer: Producer, message: Any) -> None:
        headers = dict(message.headers())
        data = msgspec.json.decode(message.value())["data"]
        made = self._answer(data)
        body = {"error": {"reason": str(made)}} if isinstance(made, Exception) else {"data": made}
        producer.produce(
            headers["bide-reply-topic"].decode(),
            key=message.key(),
            value=msgspec.json.encode(body),
            headers=[("bide-correlation", headers["bide-correlation"])],
        )
        self.answered += 1

    def stop(self) -> None:
        self._stopping.set()
        self.join(15)
