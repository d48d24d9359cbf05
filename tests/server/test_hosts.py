"""What a server is called, and that links to it go over https (reliability §3, T14 and T15; W4)."""

from __future__ import annotations

import json

import pytest
from starlette.types import Message

from bide.engine.runtime import Runtime
from bide.server import Server
from bide.testing import world
from bide.testing.world import World
from tests.server.shop import SEEN, app
from tests.server.test_signals_over_http import code

OWN = "https://flows.shop.example"
HSTS = "strict-transport-security"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("flows.shop.example", 200),
        ("FLOWS.shop.example.:443", 200),
        ("api.internal:8000", 200),
        ("a.pods.internal", 200),
        ("localhost:8000", 200),
        ("[::1]:8000", 200),
        ("evil.example", 421),
        ("flows.shop.example.evil.example", 421),
        ("evil-flows.shop.example", 421),
        ("pods.internal", 421),
        ("flows.shop.example@evil.example", 421),
        ("[::1", 421),
        ("", 421),
    ],
)
async def test_a_request_for_a_server_of_another_name_is_421(host: str, status: int) -> None:
    """T14: before the key is looked at, and whatever a proxy says that it forwards."""
    async with world(app, public_url=OWN, allowed_hosts="api.internal, *.pods.internal") as w:
        http = w.http()
        headers = {"Host": host, "X-Forwarded-Host": "flows.shop.example"}
        assert (await http.get("/v1/runs", headers=headers)).status_code == status
        for probe in ("/healthz", "/readyz", "/metrics"):  # those who watch know an address only
            assert (await http.get(probe, headers=headers)).status_code == 200
        if status == 421:
            keyless = await http.get("/v1/runs", headers={**headers, "Authorization": ""})
            assert code(keyless) == (421, "unknown_host")
            assert host not in keyless.text or not host


async def test_a_link_is_followed_and_answered_under_the_public_name_alone() -> None:
    """T14, W4: the page behind a link, too."""
    async with world(app, public_url=OWN, allowed_hosts="flows.shop.example") as w:
        await w.start("kyc", "named")
        link = SEEN["named"]
        assert link.startswith(f"{OWN}/resume/")
        http, forged = w.http(), {"Host": "evil.example"}
        for method in ("GET", "HEAD", "POST"):
            assert (await http.request(method, link, headers=forged)).status_code == 421
        assert (await http.get(link)).status_code == 200
        assert (await http.post(link, json={"approved": True})).status_code == 200


@pytest.mark.parametrize("allowed", ["", "*", "flows.shop.example,*"])
async def test_a_server_that_was_told_no_names_answers_to_any(allowed: str) -> None:
    """T14: mounted in another application, names are that one's affair."""
    async with world(app, public_url=OWN, allowed_hosts=allowed) as w:
        assert (await w.http().get("/v1/runs", headers={"Host": "whatever.example"})).status_code == 200


ANYWHERE = pytest.mark.parametrize("allowed", ["", "*", "flows.shop.example"])
PATHS = ("/v1/runs", "/resume/a.b.c", "/docs", "/healthz", "/readyz", "/metrics", "/nowhere")


async def status_of(w: World, key: str, path: str, hosts: list[bytes], version: str = "1.1") -> tuple[int, str]:
    """What a request with these Host headers is answered, as a server hands it over: httpx would send one."""
    headers = [(b"authorization", key.encode()), *((b"host", host) for host in hosts)]
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def opened() -> Runtime:
        return w.runtime

    scope = {"type": "http", "method": "GET", "path": path, "headers": headers, "http_version": version}
    await Server(opened)({**scope, "query_string": b"", "client": ("127.0.0.1", 1)}, receive, send)
    said = json.loads(sent[1]["body"]) if sent[0]["status"] == 400 else {}
    return sent[0]["status"], said.get("code", "")


@ANYWHERE
@pytest.mark.parametrize("second", [b"evil.example", b"flows.shop.example"], ids=["another", "the same"])
async def test_T14_two_host_headers_are_400(allowed: str, second: bytes) -> None:
    """One for the proxy, one for us; also where any name is answered to."""
    async with world(app, public_url=OWN, allowed_hosts=allowed) as w:
        for path in PATHS:
            for version in ("1.0", "1.1", "2"):
                hosts = [b"flows.shop.example", second]
                assert await status_of(w, "", path, hosts, version) == (400, "repeated_header"), path


@ANYWHERE
async def test_a_request_of_http_1_1_without_a_host_header_is_400(allowed: str) -> None:
    """RFC 9112, 3.2. Those who watch over processes may speak HTTP/1.0, which has none."""
    async with world(app, public_url=OWN, allowed_hosts=allowed) as w:
        http = w.http()
        await http.get("/v1/runs")  # its key is stored with its first request
        key = http.headers["Authorization"]
        for path in PATHS:
            assert await status_of(w, key, path, []) == (400, "no_host"), path
            assert (await status_of(w, key, path, [b"flows.shop.example"]))[0] != 400, path
        for probe in ("/healthz", "/readyz", "/metrics"):
            assert await status_of(w, key, probe, [], "1.0") == (200, ""), probe
        answered = await status_of(w, key, "/v1/runs", [], "1.0")
        assert answered[0] == (421 if allowed.startswith("flows") else 200)


@pytest.mark.parametrize(("url", "says"), [(OWN, "max-age=31536000"), ("http://flows.shop.example", None)])
async def test_a_server_that_is_reached_over_https_says_that_it_stays_so(url: str, says: str | None) -> None:
    """T15: on pages, answers and refusals."""
    async with world(app, public_url=url) as w:
        await w.start("kyc", "stays")
        http = w.http()
        for response in (
            await http.get(SEEN["stays"]),
            await http.get("/v1/runs"),
            await http.get("/v1/runs/run_0"),
            await http.get("/docs"),
            await http.post("/resume/a.b.c", json=1),
        ):
            assert response.headers.get(HSTS) == says
