"""The webhook transport against a server that behaves as badly as servers do (U9, F100, F101)."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import hmac
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

import bide
from bide.engine import addresses
from bide.engine.transport import Answered, Request, Sent, Undelivered

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()

REQUEST = Request(
    workspace="default",
    run_id="run_7",
    wait_id="wait_7_1",
    interaction_id="int_7_1_0",
    correlation_id="cor_7_1_0_ab",
    step="pay",
    item=0,
    payload='{"amount":100}',
    resume_url="https://shop.example/resume/token",
)

Respond = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Exchange:
    """The last request that a server got."""

    headers: dict[str, str]
    body: bytes = b""
    count: int = 0


@asynccontextmanager
async def server(respond: Respond) -> AsyncIterator[tuple[str, Exchange]]:
    exchange = Exchange()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = [line.partition(": ") for line in head.split("\r\n")[1:] if line]
        exchange.headers = {name.lower(): value for name, _, value in lines}
        exchange.body = await reader.readexactly(int(exchange.headers.get("content-length", "0")))
        exchange.count += 1
        try:
            await respond(writer)
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/requests", exchange


def response(status: str, body: bytes = b"", *headers: str) -> Respond:
    async def respond(writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    return respond


async def send(respond: Respond, **options: object) -> tuple[object, Exchange]:
    async with server(respond) as (url, exchange):
        webhook = bide.Webhook(url, allow_private=True, **options)  # type: ignore[arg-type]  # each test gives its own
        [result] = await webhook.dispatch([REQUEST])
        return result, exchange


async def test_U9_a_request_is_signed_and_carries_everything_an_answer_needs() -> None:
    """U9: Standard Webhooks headers, the resume URL inside."""
    result, exchange = await send(response("202 Accepted"), secret=SECRET, headers={"x-key": "k"})
    assert result == Sent()
    body = msgspec.json.decode(exchange.body)
    assert (body["type"], body["interaction"], body["correlation"]) == ("bide.request", "int_7_1_0", "cor_7_1_0_ab")
    assert (body["data"], body["resume_url"]) == ({"amount": 100}, "https://shop.example/resume/token")
    assert (exchange.headers["webhook-id"], exchange.headers["x-key"]) == ("int_7_1_0", "k")
    signed = f"int_7_1_0.{exchange.headers['webhook-timestamp']}.".encode() + exchange.body
    mac = hmac.digest(b"0123456789abcdef01234567", signed, hashlib.sha256)
    assert exchange.headers["webhook-signature"] == "v1," + base64.b64encode(mac).decode()


async def test_U9_a_request_of_a_traced_run_carries_its_trace() -> None:
    """U9, §11: who gets it can join the trace."""
    trace = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "vendor=1"}
    async with server(response("202 Accepted")) as (url, exchange):
        await bide.Webhook(url, allow_private=True).dispatch([msgspec.structs.replace(REQUEST, trace=trace)])
    assert trace.items() <= exchange.headers.items()


@pytest.mark.parametrize(
    ("respond", "result"),
    [
        (response("200 OK", b'{"paid": true}'), Answered({"paid": True})),
        (response("200 OK"), Sent()),
        (response("204 No Content"), Sent()),
    ],
)
async def test_U9_what_a_response_means(respond: Respond, result: object) -> None:
    """U9: the answer in the response body with 200, or later."""
    assert (await send(respond))[0] == result


@pytest.mark.parametrize(
    ("respond", "retry", "says"),
    [
        (response("503 Service Unavailable"), True, "503"),
        (response("429 Too Many Requests"), True, "429"),
        (response("422 Unprocessable Content"), False, "422"),
        (response("302 Found", b"", "location: http://169.254.169.254/"), False, "redirects"),
        (response("200 OK", b"<html>"), False, "no JSON"),
        (response("200 OK", b'"' + b"x" * 600_000 + b'"'), False, "more than"),
        (response("200 OK", gzip.compress(b" " * 10_000_000), "content-encoding: gzip"), False, "compressed"),  # T61
    ],
)
async def test_what_is_tried_again_and_what_is_not(respond: Respond, retry: bool, says: str) -> None:
    """F100: what trying again cannot help is a dead letter at once. A redirect is never followed."""
    result, exchange = await send(respond)
    assert isinstance(result, Undelivered)
    assert (result.retry, exchange.count) == (retry, 1)
    assert says in result.reason


async def test_a_server_that_drips_does_not_hold_us_up() -> None:
    """F101: the time is for the whole exchange."""

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n")
        for _ in range(100):
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)

    result, _ = await send(drip, timeout=0.2)
    assert isinstance(result, Undelivered)
    assert "did not answer within 0.2 s" in result.reason


async def test_private_addresses_are_refused_unless_allowed() -> None:
    """No request goes inside because of a name that leads there."""
    async with server(response("200 OK")) as (url, exchange):
        [result] = await bide.Webhook(url).dispatch([REQUEST])
    assert isinstance(result, Undelivered)
    assert (result.retry, exchange.count) == (False, 0)
    assert "no public address" in result.reason


async def test_nobody_at_the_other_end_is_tried_again() -> None:
    with socket.socket() as bound:  # and not listening: nobody else can take the port meanwhile
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/requests"
        [result] = await bide.Webhook(url, allow_private=True).dispatch([REQUEST])
    assert isinstance(result, Undelivered)
    assert result.retry


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "::1", "fe80::1", "::ffff:10.0.0.1", "224.0.0.1"],
)
def test_addresses_that_are_not_public(address: str) -> None:
    import ipaddress

    assert not addresses.is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "host",
    [
        "127.1", "0x7f.1", "2130706433", "0177.0.0.1", "0.0.0.0", "100.64.0.1", "198.18.0.1", "255.255.255.255",
        "[::]", "[::1]", "[::127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[64:ff9b::169.254.169.254]",
        "[2002:7f00:1::]", "[2001:0:7f00:1::]", "[fd00::1]", "[fec0::1]", "[ff02::1]",
    ],
)  # fmt: skip
async def test_no_way_of_writing_an_inner_address_leads_there(host: str) -> None:
    """T57."""
    with pytest.raises(addresses.RefusedAddress):
        await addresses.find(f"http://{host}/", allow_private=False)


async def test_the_request_goes_to_the_address_that_was_looked_at() -> None:
    """T58: the name is not looked up again; it stays in the header."""
    target = await addresses.find("http://localhost:81/x?y=1", allow_private=True)
    assert target.url in ("http://127.0.0.1:81/x?y=1", "http://[::1]:81/x?y=1")
    assert (target.host, target.name) == ("localhost:81", "localhost")


@pytest.mark.parametrize("url", ["https://host/\r\nx: y", "https://ho st/", "https://host/\x00", "https://host/\t"])
def test_urls_with_characters_that_end_a_line_or_a_word_are_refused(url: str) -> None:
    """T60."""
    with pytest.raises(bide.BadConfiguration, match="control character"):
        bide.Webhook(url)


@pytest.mark.parametrize("url", ["ftp://host/", "https://", "//host", "https://user:secret@host/", "https://host:x/"])
def test_urls_that_cannot_be_used_are_refused(url: str) -> None:
    with pytest.raises(bide.BadConfiguration):
        bide.Webhook(url)


@pytest.mark.parametrize("secret", ["whsec_short", "whsec_!!!", "whsec_" + base64.b64encode(b"short").decode()])
def test_secrets_that_cannot_be_used_are_refused(secret: str) -> None:
    with pytest.raises(bide.BadConfiguration, match="secret"):
        bide.Webhook("https://host/", secret=secret)


async def test_one_address_gets_so_many_requests_a_second_whoever_sends_them() -> None:
    """T64: two webhooks that lead to one address keep to the slower pace together."""
    arrived: list[float] = []
    loop = asyncio.get_running_loop()

    async def respond(writer: asyncio.StreamWriter) -> None:
        arrived.append(loop.time())
        await response("202 Accepted")(writer)

    async with server(respond) as (url, _):
        one = bide.Webhook(url, allow_private=True, rate=4)
        other = bide.Webhook(url.replace("/requests", "/others"), allow_private=True, rate=20, name="other")
        began = loop.time()
        await one.dispatch([REQUEST])
        results = await asyncio.gather(one.dispatch([REQUEST] * 5), other.dispatch([REQUEST] * 4))

    assert [result for sent in results for result in sent] == [Sent()] * 9
    assert len(arrived) == 10
    assert max(arrived) - began >= 1.5  # four at once, then one every quarter of a second; slower is no mistake


@pytest.mark.parametrize("rate", [0, -1, True, "fast", float("nan"), float("inf")])
def test_a_rate_that_cannot_be_kept_is_refused(rate: object) -> None:
    with pytest.raises(bide.BadConfiguration, match="rate"):
        bide.Webhook("https://pay.example", rate=rate)  # type: ignore[arg-type]


def test_a_slow_pace_takes_few_requests_at_once() -> None:
    """T64, U7: what is handed over together is sent before its lease ends, so it is not sent twice."""
    assert bide.Webhook("https://pay.example", rate=0.5).at_once == 5
    assert bide.Webhook("https://pay.example").at_once == 1000
