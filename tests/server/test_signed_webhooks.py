"""Webhooks that come in with a signature: only the provider's own words count (reliability §3, T63; F9)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

import bide
from bide.testing import world
from bide.testing.world import World
from tests.server.test_signals_over_http import code

KEY = b"0123456789abcdef01234567"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
OLD = "whsec_" + base64.b64encode(b"the one before, for a day").decode()
STRIPE = "whsec_as_it_stands"
BODY = b'{"paid": true, "amount": 49.00}'

links: list[str] = []
app = bide.App("signed", store="memory://")
app.signature("standard", bide.WebhookSignature(SECRET, OLD))
app.signature("stripe", bide.WebhookSignature(STRIPE, scheme="stripe"))


@app.workflow("pay")
async def pay(step: bide.Step, signed: str) -> Any:
    cb = await step.callback("paid", timeout="7d", signed=signed, title="Was it paid?")
    await step.run("send", links.append, cb.url)
    return await cb


def standard(at: int, body: bytes = BODY, *, key: bytes = KEY, id: str = "msg_1") -> dict[str, str]:
    mac = base64.b64encode(hmac.digest(key, f"{id}.{at}.".encode() + body, hashlib.sha256)).decode()
    return {"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": f"v1,{mac}"}


def stripe(at: int, body: bytes = BODY, *, key: bytes = STRIPE.encode()) -> dict[str, str]:
    mac = hmac.digest(key, f"{at}.".encode() + body, hashlib.sha256).hex()
    return {"stripe-signature": f"t={at},v1={mac},v0={'0' * 64}"}


async def begin(w: World, signed: str) -> tuple[str, Callable[..., Any]]:
    """A run that waits for a signed answer, and how its link is posted to."""
    run = await w.start("pay", signed)
    link, http = links[-1], w.http()

    async def post(headers: Any, body: bytes = BODY) -> httpx.Response:
        kind = [("content-type", "application/json")]
        given = list(headers.items()) if isinstance(headers, dict) else headers
        return await http.post(link, content=body, headers=[*kind, *given])

    return run.id, post


def now(w: World) -> int:
    return int(w.clock().timestamp())


@pytest.mark.parametrize(("scheme", "sign"), [("standard", standard), ("stripe", stripe)])
async def test_a_signed_answer_is_taken_once(store_url: str, scheme: str, sign: Any) -> None:
    """T63, W4: and its replay, in the window or after it, changes nothing."""
    async with world(app, store_url) as w:
        run, post = await begin(w, scheme)
        headers = sign(now(w))
        first, again = await post(headers), await post(headers)
        assert (first.status_code, first.json()["outcome"]) == (200, "woke")
        assert (again.status_code, again.json()["duplicate"]) == (200, True)
        assert await w.result(run) == {"paid": True, "amount": 49.0}
        w.clock.advance(timedelta(minutes=6))
        assert code(await post(headers)) == (401, "bad_signature")
        assert (await post(sign(now(w), b'{"paid": false}'), b'{"paid": false}')).status_code == 410


FORGED: dict[str, Callable[[int], Any]] = {
    "nothing": lambda at: {},
    "the key of another": lambda at: standard(at, key=b"x" * 24),
    "another body": lambda at: standard(at, b'{"paid":false}'),
    "the same JSON, written anew": lambda at: standard(at, b'{"paid":true,"amount":49.0}'),
    "six minutes ago": lambda at: standard(at - 360),
    "in six minutes": lambda at: standard(at + 360),
    "another time than was signed": lambda at: {**standard(at), "webhook-timestamp": str(at + 1)},
    "another id than was signed": lambda at: {**standard(at), "webhook-id": "msg_2"},
    "a dot moved from the time to the id": lambda at: standard(at, id="msg.1"),
    "no time": lambda at: {**standard(at), "webhook-timestamp": ""},
    "a time that is no number": lambda at: {**standard(at), "webhook-timestamp": f"{at}.0"},
    "a negative time": lambda at: {**standard(at), "webhook-timestamp": f"-{at}"},
    "no version": lambda at: {**standard(at), "webhook-signature": standard(at)["webhook-signature"][3:]},
    "another version": lambda at: {**standard(at), "webhook-signature": "v1a" + standard(at)["webhook-signature"][2:]},
    "an empty signature": lambda at: {**standard(at), "webhook-signature": "v1,"},
    "many signatures": lambda at: {
        **standard(at),
        "webhook-signature": " ".join(["v1,AAAA"] * 20 + [standard(at)["webhook-signature"]]),
    },
    "two signature headers": lambda at: [*standard(at).items(), ("webhook-signature", "v1,AAAA")],
    "of the other scheme": stripe,
}


@pytest.mark.parametrize("what", FORGED)
async def test_what_the_provider_did_not_sign_is_401_and_the_link_stays_open(what: str) -> None:
    """T63: whoever has found the link cannot answer it."""
    async with world(app) as w:
        run, post = await begin(w, "standard")
        refused = await post(FORGED[what](now(w)))
        assert code(refused) == (401, "bad_signature")
        assert (await w.get(run)).status == "waiting"
        assert (await post(standard(now(w)))).status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        "",
        "t=,v1=",
        "t={at}",
        "v1={mac}",
        "t={at},t={at},v1={mac}",
        "t={at},v0={mac}",
        "t={at};v1={mac}",
        "t={at},v1={MAC}",
    ],
)
async def test_a_stripe_signature_with_tricks_is_401(header: str) -> None:
    """T63: the list of `v1` is read as it is meant, and as nothing else."""
    async with world(app) as w:
        _, post = await begin(w, "stripe")
        at = now(w)
        mac = stripe(at)["stripe-signature"].partition("v1=")[2][:64]
        tricky = header.format(at=at, mac=mac, MAC=mac.upper() + "G")
        assert code(await post({"stripe-signature": tricky})) == (401, "bad_signature")


async def test_both_secrets_are_good_while_they_are_rotated() -> None:
    """T63: and one good signature among others is enough."""
    async with world(app) as w:
        run, post = await begin(w, "standard")
        at = now(w)
        old = standard(at, key=b"the one before, for a day")["webhook-signature"]
        response = await post({**standard(at), "webhook-signature": f"v1a,abcd v1,AAAA {old}"})
        assert response.status_code == 200, response.text
        assert (await w.get(run)).status == "completed"


async def test_a_person_finds_no_form_behind_a_signed_link(store_url: str) -> None:
    """W5, T63: the page says so, and a form that is sent anyway is refused."""
    async with world(app, store_url) as w:
        run, _ = await begin(w, "standard")
        http = w.http()
        page = await http.get(links[-1])
        assert (page.status_code, "<form" in page.text, "nothing to fill in" in page.text) == (200, False, True)
        assert (await http.post(links[-1], data={"data": "true"})).status_code == 401
        assert (await w.get(run)).status == "waiting"


async def test_a_server_that_does_not_know_the_signature_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """T63: the provider tries again until the app is deployed."""
    async with world(app) as w:
        _, post = await begin(w, "standard")
        monkeypatch.delitem(app.registry.signatures, "standard")
        response = await post(standard(now(w)))
        assert code(response) == (503, "unavailable")
        assert response.headers["retry-after"] == "60"


async def test_a_callback_with_a_signature_that_nobody_named_fails_its_run() -> None:
    async with world(app) as w:
        run = await w.start("pay", "nobody")
        error = (await w.get(run.id)).error
        assert error is not None
        assert "there are: standard, stripe" in error.message


@pytest.mark.parametrize(
    ("secrets", "options", "words"),
    [
        ((), {}, "needs the secret"),
        (("",), {}, "needs the secret"),
        (("whsec_short",), {}, "openssl rand"),
        ((SECRET,), {"scheme": "v2"}, "standard, stripe"),
        ((SECRET,), {"tolerance": "soon"}, "tolerance"),
    ],
)
def test_a_signature_that_cannot_be_checked_is_refused(secrets: Any, options: Any, words: str) -> None:
    with pytest.raises(bide.BadConfiguration, match=words):
        bide.WebhookSignature(*secrets, **options)


def test_a_signature_does_not_show_its_secret() -> None:
    assert SECRET not in repr(bide.WebhookSignature(SECRET))
