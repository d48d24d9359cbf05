"""The transport `kafka`: requests to one topic, replies from another (U9).

A request is a record with the interaction's id as its key and `{"data": …}` as its value; a reply is `{"data": …}` or
`{"error": {"reason": …}}` with the header `bide-interaction` or `bide-correlation` of the request. Offsets are
committed after the replies are durably admitted, so a reply may come twice and is never lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from bide.core.payloads import BadPayload, decode_json
from bide.engine.transport import Admission, Answer, Dispatched, Poison, Request, Sent, Undelivered
from bide.errors import BadConfiguration, StoreUnavailable

log = logging.getLogger("bide.kafka")

AT_ONCE = 1000  # replies of one admission
LONGEST_PAUSE = 5.0
LONGEST_REPLY = 17 * 1024 * 1024
ACK_SECONDS = 15


class Kafka:
    """Sends requests to a topic and takes replies from another, as one member of a consumer group.

    The brokers come from *servers* or the environment variable `BIDE_KAFKA_SERVERS`. *config* goes to librdkafka as it
    is, for both directions (security, timeouts). A record that can never be a reply goes to the topic *dead_letters*,
    and becomes a dead letter; the partition goes on.

    >>> provider = Kafka(requests="payment.requests", replies="payment.results", servers="localhost:9092")
    >>> provider.name, provider.dead_letters
    ('kafka', 'payment.results.dead-letters')
    """

    def __init__(
        self,
        *,
        requests: str,
        replies: str,
        servers: str | None = None,
        group: str | None = None,
        dead_letters: str | None = None,
        config: Mapping[str, Any] | None = None,
        name: str = "kafka",
    ) -> None:
        for topic in (requests, replies):
            if not topic or len(topic) > 249 or any(not (c.isalnum() or c in "._-") for c in topic):
                raise BadConfiguration(f"{topic!r} is no name of a Kafka topic: letters, digits, '.', '_' and '-'")
        self.name = name
        self.requests = requests
        self.replies = replies
        self.group = group if group is not None else f"bide.{replies}"
        self.dead_letters = dead_letters if dead_letters is not None else f"{replies}.dead-letters"
        self._servers = servers
        self._config = dict(config or {})
        self._lock = threading.Lock()
        self._producer: Any = None

    # ------------------------------------------------------------ out

    async def dispatch(self, requests: Sequence[Request]) -> Sequence[Dispatched]:
        return await asyncio.to_thread(self._produce, requests)

    def _produce(self, requests: Sequence[Request]) -> list[Dispatched]:
        """Hand over all, then wait for the broker's word on each."""
        producer, confluent = self._open_producer(), _confluent()
        errors: dict[int, str] = {}
        acknowledged: set[int] = set()

        def told(at: int) -> Any:
            def note(error: Any, _: Any) -> None:
                if error is None:
                    acknowledged.add(at)
                else:
                    errors[at] = str(error)

            return note

        for at, request in enumerate(requests):
            value = b'{"data":' + request.payload.encode() + b"}"
            while True:
                try:
                    producer.produce(
                        self.requests,
                        key=request.interaction_id,
                        value=value,
                        headers=self._headers(request),
                        on_delivery=told(at),
                    )
                    break
                except BufferError:
                    producer.poll(0.1)  # the queue is full: let some of it go
                except confluent.KafkaException as error:
                    errors[at] = str(error)
                    break
        producer.flush(ACK_SECONDS + 5)
        return [
            Sent() if at in acknowledged else Undelivered(errors.get(at, "the broker did not acknowledge it in time"))
            for at in range(len(requests))
        ]

    def _headers(self, request: Request) -> list[tuple[str, bytes]]:
        return [
            ("bide-workspace", request.workspace.encode()),
            ("bide-run", request.run_id.encode()),
            ("bide-wait", request.wait_id.encode()),
            ("bide-interaction", request.interaction_id.encode()),
            ("bide-correlation", request.correlation_id.encode()),
            ("bide-reply-topic", self.replies.encode()),
            *((name, value.encode()) for name, value in request.trace.items()),
        ]

    def _open_producer(self) -> Any:
        with self._lock:
            if self._producer is None:
                config = {
                    "enable.idempotence": True,
                    "linger.ms": 5,
                    "delivery.timeout.ms": ACK_SECONDS * 1000,
                    "compression.type": "lz4",
                    "message.max.bytes": LONGEST_REPLY,
                }
                self._producer = _confluent().Producer({**config, **self._brokers()}, logger=log)
            return self._producer

    def _brokers(self) -> dict[str, Any]:
        servers = self._servers or os.environ.get("BIDE_KAFKA_SERVERS")
        if not servers and "bootstrap.servers" not in self._config and "test.mock.num.brokers" not in self._config:
            raise BadConfiguration("Kafka has no brokers; give servers= or set BIDE_KAFKA_SERVERS")
        return {**({"bootstrap.servers": servers} if servers else {}), **self._config}

    # ------------------------------------------------------------ back

    async def listen(self, admission: Admission) -> None:
        """Read replies until cancelled. The thread that reads is joined before this returns."""
        listener = Listener(self, admission, asyncio.get_running_loop())
        thread = threading.Thread(target=listener.run, name=f"bide-{self.name}", daemon=True)
        thread.start()
        try:
            await listener.ended
        finally:
            listener.stop()
            await asyncio.to_thread(thread.join, 10)

    def bury(self, message: Any, reason: str) -> None:
        """Put a record aside, as it is, with the reason."""
        headers = [*(message.headers() or ()), ("bide-reason", reason.encode())]
        producer = self._open_producer()
        producer.produce(self.dead_letters, key=message.key(), value=message.value(), headers=headers)
        producer.flush(ACK_SECONDS + 5)


class Listener:
    """One consumer on a thread of its own: librdkafka's calls block."""

    def __init__(self, transport: Kafka, admission: Admission, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._admission = admission
        self._loop = loop
        self._stopping = threading.Event()
        self.ended: asyncio.Future[None] = loop.create_future()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        try:
            self._read()
        except BaseException as error:
            self._tell(error)
        else:
            self._tell(None)

    def _tell(self, error: BaseException | None) -> None:
        def tell() -> None:
            if self.ended.done():
                return
            if error is None:
                self.ended.set_result(None)
            else:
                self.ended.set_exception(error)

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(tell)

    def _read(self) -> None:
        consumer = self._open()
        try:
            consumer.subscribe([self._transport.replies])
            while not self._stopping.is_set():
                messages = consumer.consume(AT_ONCE, timeout=0.1)
                if messages:
                    self._take(consumer, messages)
        finally:
            consumer.close()

    def _open(self) -> Any:
        config = {
            "group.id": self._transport.group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "fetch.message.max.bytes": LONGEST_REPLY,
            "partition.assignment.strategy": "cooperative-sticky",
        }
        return _confluent().Consumer({**config, **self._transport._brokers()}, logger=log)

    def _take(self, consumer: Any, messages: Sequence[Any]) -> None:
        """Admit a batch, then commit its offsets: never the other way round."""
        confluent = _confluent()
        answers: list[Answer] = []
        taken = []
        for message in messages:
            if message.error() is not None:
                self._note(message.error())
                continue
            taken.append(message)
            found = read_reply(message.headers(), message.value())
            if isinstance(found, Answer):
                answers.append(found)
            else:
                self._bury(message, found)
        if answers and not self._admit(answers):
            return  # stopped before it was durable: the next owner of the partition reads it again
        offsets: dict[tuple[str, int], int] = {}
        for message in taken:
            at = (message.topic(), message.partition())
            offsets[at] = max(offsets.get(at, 0), message.offset() + 1)
        if not offsets:
            return
        try:
            consumer.commit(
                offsets=[confluent.TopicPartition(topic, no, offset) for (topic, no), offset in offsets.items()],
                asynchronous=False,
            )
        except confluent.KafkaException as error:
            log.info("offsets were not committed; those replies come again, and change nothing: %s", error)

    def _note(self, error: Any) -> None:
        if error.fatal():
            raise _confluent().KafkaException(error)
        log.warning("kafka: %s", error)

    def _admit(self, answers: Sequence[Answer]) -> bool:
        pause = 0.1
        while not self._stopping.is_set():
            try:
                self._call(self._admission.admit(answers))
                return True
            except StoreUnavailable as error:
                log.warning("replies cannot be admitted yet: %s", error)
                self._stopping.wait(pause)
                pause = min(LONGEST_PAUSE, pause * 2)
        return False

    def _bury(self, message: Any, reason: str) -> None:
        log.warning(
            "a record of %s [%s] at %s is no reply: %s", message.topic(), message.partition(), message.offset(), reason
        )
        value = message.value() or b""
        poison = Poison(
            id=f"{message.topic()}/{message.partition()}/{message.offset()}",
            reason=reason,
            text=value[:4096].decode("utf-8", "replace").replace("\x00", "\ufffd"),
        )
        self._transport.bury(message, reason)
        pause = 0.1
        while not self._stopping.is_set():
            try:
                self._call(self._admission.bury(poison))
                return
            except StoreUnavailable:
                self._stopping.wait(pause)
                pause = min(LONGEST_PAUSE, pause * 2)

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def read_reply(headers: Any, value: bytes | None) -> Answer | str:
    """A record as an answer; or the reason why it is none.

    >>> read_reply([("bide-interaction", b"int_7_1_0")], b'{"data": 1}').data
    1
    >>> read_reply([], b'{"data": 1}')
    'it has neither a header bide-interaction nor bide-correlation'
    """
    found = {name: raw for name, raw in headers or () if isinstance(raw, bytes)}
    try:
        texts = {name: raw.decode() for name, raw in found.items() if name.startswith("bide-")}
    except UnicodeDecodeError:
        return "its headers are not UTF-8"
    interaction, correlation = texts.get("bide-interaction"), texts.get("bide-correlation")
    if not interaction and not correlation:
        return "it has neither a header bide-interaction nor bide-correlation"
    if value is None:
        return "it has no value"
    try:
        body = decode_json(value, max_bytes=LONGEST_REPLY)
    except BadPayload as error:
        return f"its value is no JSON: {error}"
    if not isinstance(body, dict) or ("data" in body) == ("error" in body):
        return 'its value is neither {"data": …} nor {"error": {"reason": …}}'
    who = {"interaction_id": interaction, "correlation_id": correlation, "workspace": texts.get("bide-workspace")}
    if "data" in body:
        return Answer(**who, data=body["data"])
    said = body["error"]
    reason = said.get("reason") if isinstance(said, dict) else said
    if not isinstance(reason, str):
        return "its error has no reason"
    return Answer(**who, reason=reason)


def _confluent() -> Any:
    try:
        import confluent_kafka
    except ModuleNotFoundError as error:
        raise BadConfiguration("the kafka transport needs confluent-kafka: pip install 'bide[kafka]'") from error
    return confluent_kafka
