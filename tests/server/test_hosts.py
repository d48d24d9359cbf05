"""What a server is called, and that links to it go over https (reliability §3, T14 and T15; W4)."""

from __future__ import annotations

import pytest

from bide.testing import world
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


async def test_two_host_headers_are_400() -> None:
    """T14: one for the proxy, one for us."""
    async with world(app, public_url=OWN, allowed_hosts="flows.shop.example") as w:
        http = w.http()
        request = http.build_request("GET", "/v1/runs")
        both = [*request.headers.raw, (b"Host", b"evil.example")]
        again = http.build_request("GET", "/v1/runs", headers=both)
        again.headers._list = [(name, name.lower(), value) for name, value in both]  # httpx keeps one
        assert code(await http.send(again)) == (400, "repeated_header")


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
