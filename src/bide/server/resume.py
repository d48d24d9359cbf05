"""What is behind a resume link: GET shows a form and decides nothing, POST answers (W4, W5, law 10)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import msgspec

from bide.authoring.machine import encode
from bide.core.commands import Complete, Denied, Failed, Receipt
from bide.core.exchanging import terms_of
from bide.core.expressions import BadExpression, Facts
from bide.core.holding import is_held
from bide.core.payloads import BadPayload, digest, encode_payload
from bide.core.records import OPEN_INTERACTION, OPEN_WAIT, RunId, Wait, run_of_interaction
from bide.core.schema import problems
from bide.core.tokens import Bound
from bide.engine.figures import dropped
from bide.errors import BadInput, BadSignature, Forbidden, PayloadTooLarge, TooManyRequests
from bide.server.bodies import ENVELOPE, header, media_type, parse_json, read_body
from bide.server.calls import Answer, Call, Endpoint, client_of, problems_of
from bide.server.forms import (
    MOST_SENT,
    answers_untouched,
    form_of,
    left_out,
    read_form,
    say_what_cannot_be_kept,
    say_what_to_choose,
    with_errors,
)
from bide.server.pages import page
from bide.server.problems import NOT_THERE, Refusal, refusal_of
from bide.server.senders import sender_of
from bide.server.tries import check_guesses, note_guess, note_misfit
from bide.stores.interface import WaitFilter

Tone = Literal["good", "calm", "bad"]
LONGEST_SHOWN = 200  # of an expression
FORM = "application/x-www-form-urlencoded"
LOOK_AGAIN = "Please look at the answers again."
NOT_TOGETHER = "Something in them does not fit together."
GONE = {
    "already_completed": "this link was used; the first answer stands",
    "timed_out": "the time to answer is over",
    "failed": "the wait was failed before an answer came; it takes none any more",
    "cancelled": "nobody waits for this answer any more",
}

# The same for people who opened the link in a mail.
TOLD = {
    "already_completed": "This was answered already, and the first answer stands. There is nothing left to do.",
    "timed_out": "The time to answer is over. Please ask whoever sent you the link what to do now.",
    "failed": "This was closed before an answer came. Please ask whoever sent you the link what to do now.",
    "cancelled": "This answer is not needed any more. There is nothing left to do.",
}
BY_JSON = "to the address of this page, with POST and Content-Type: application/json."
TOO_MANY = f"This asks for more than fits on a page, so there is no form. The answer can be sent as JSON: {BY_JSON}"
TOO_LONG = "Your answer is too long. Please go back and shorten it."
BROKEN = "It may have been cut off or be too old. Copy the whole link, or ask whoever sent it to you for a new one."


class Standing(msgspec.Struct):
    """What a link leads to, as it stands now."""

    bound: Bound
    wait: Wait | None
    details: dict[str, Any]
    gone: str | None  # why it takes no answer any more


async def _standing(call: Call) -> Standing:
    """Raises 404 for a token that nothing proves, without looking anything up; and 429 for many of them (T01)."""
    bound = await _bound(call)
    if bound is None:
        call.runtime.figures.drop("bad_token")
        note_guess(call.runtime, sender_of(call.scope))
        raise Refusal(404, "not_found", "there is no such link, or what signed it is no longer known here")
    store = call.runtime.store
    named = run_of_interaction(bound.signal_id)
    if named is not None:
        return await _of_interaction(call, bound, named)
    name = await store.name(bound.workspace, "signal", bound.signal_id)
    wait: Wait | None = None
    if name is not None and not is_held(name):
        wanted = WaitFilter(
            workspace=bound.workspace, run_id=name.run_id, no=int(name.message_id.rstrip("!")), status=None
        )
        wait = next(iter(await store.waits(wanted, after=None, limit=1)), None)
    if wait is None:
        if await store.run(bound.workspace, bound.run_id) is None:
            raise Refusal(404, "not_found", NOT_THERE["not_found"])
        return Standing(bound, None, {}, "cancelled")
    gone = None if wait.status in OPEN_WAIT else _why(wait.status)
    return Standing(bound, wait, msgspec.json.decode(wait.details), gone)


async def _bound(call: Call) -> Bound | None:
    return (await call.runtime.signer()).read(call.path["token"])


async def _of_interaction(call: Call, bound: Bound, named: tuple[RunId, int, int]) -> Standing:
    """The link of one interaction of a request, which a transport sent along (U9)."""
    store = call.runtime.store
    rows = await store.some_interactions([named])
    wanted = WaitFilter(workspace=bound.workspace, run_id=named[0], no=named[1], status=None)
    waits = await store.waits(wanted, after=None, limit=1)
    if not rows or not waits:
        raise Refusal(404, "not_found", NOT_THERE["not_found"])
    is_open = rows[0].status in OPEN_INTERACTION and waits[0].status in OPEN_WAIT
    gone = _why(rows[0].status if rows[0].status not in OPEN_INTERACTION else waits[0].status)
    details = {"title": waits[0].key, "schema": terms_of(waits[0]).schema}
    return Standing(bound, waits[0], details, None if is_open else gone)


def _why(status: str) -> str:
    """Why what has ended like this takes no answer, as `GONE` and `TOLD` have it."""
    return status if status in GONE else "already_completed"


def _nonce(call: Call) -> str:
    """Shows that a form came from our page for this link (T17, T18)."""
    return hmac.digest(call.path["token"].encode(), b"bide form", hashlib.sha256).hex()[:32]


async def show(call: Call) -> Any:
    """The page. Link previews and mail scanners may look as often as they like (T16)."""
    try:
        standing = await _standing(call)
    except (Refusal, TooManyRequests) as error:
        refusal = refusal_of(error)
        return _said(refusal.status, "This link does not work", BROKEN, headers=refusal.headers)
    if standing.gone is not None:
        return _said(410, _title(standing), TOLD[standing.gone], "calm")
    if standing.details.get("signed") is not None:
        return _said(200, _title(standing), "A program answers here; there is nothing to fill in.", "good")
    return _form(call, standing, form_of(standing.details.get("schema")))


async def answer(call: Call) -> Any:
    is_form = media_type(call.scope) == FORM
    try:
        return await _answer(call, is_form)
    except Exception as error:
        if not is_form:
            raise
        refusal = refusal_of(error)
        if refusal.status >= 500:
            raise
        said = TOO_LONG if refusal.status == 413 else refusal.detail
        return _said(refusal.status, "This did not work", said, headers=refusal.headers)


async def _answer(call: Call, is_form: bool) -> Any:
    limit = call.runtime.settings.max_payload_bytes
    if await _bound(call) is None:
        check_guesses(call.runtime, sender_of(call.scope))  # what they send is not even read
    raw = await read_body(call.scope, call.receive, limit + ENVELOPE, call.body_seconds)
    filled: Mapping[str, Sequence[str]] | None = None
    body: Any = None
    if is_form:
        filled = _filled(raw)
    else:
        body = parse_json(call.scope, raw, limit + ENVELOPE)
        if not raw.strip():
            raise Refusal(400, "not_json", "the body is empty; send the answer as JSON")
    standing = await _standing(call)
    _check_signature(call, standing, raw)
    if filled is not None:
        _check_page(call, filled)
        schema = standing.details.get("schema")
        fields = form_of(schema, filled)
        if standing.gone is None and say_what_cannot_be_kept(fields, filled):
            say_what_to_choose(fields)
            return _form(call, standing, fields, 422, LOOK_AGAIN)
        body = read_form(schema, filled)
        if standing.gone is None and not problems(schema, _text(body)) and not _is_chosen(schema, filled):
            say_what_to_choose(fields)
            return _form(call, standing, fields, 422, LOOK_AGAIN)
    try:
        receipt = await _deliver(call, standing, body)
    except BadInput:
        if standing.gone is None:
            raise
        receipt = Receipt(outcome="late", reason=standing.gone)  # 410 goes before 422 (H1)
        call.runtime.figures.drop(dropped(receipt) or "")  # what cannot be stored is counted, and not kept (W7)
    return _reply(call, standing, receipt, filled)


def _check_signature(call: Call, standing: Standing, raw: bytes) -> None:
    """Where the link is for a provider that signs, having it is not enough (T63)."""
    name = standing.details.get("signed")
    if name is None:
        return
    signature = call.runtime.registry.signatures.get(name)
    if signature is None:
        retry = (("Retry-After", "60"),)
        raise Refusal(503, "unavailable", "this server's app does not name the signature of the link", headers=retry)
    headers = ((key.decode("latin-1"), value.decode("latin-1")) for key, value in call.scope["headers"])
    try:
        signature.check(headers, raw, now=call.runtime.ports.now())
    except BadSignature as error:
        call.runtime.figures.drop("bad_token")
        raise Refusal(401, "bad_signature", f"the provider did not sign this: {error}") from error


async def _deliver(call: Call, standing: Standing, body: Any) -> Receipt:
    facts = Facts(_text(body))
    accept, extract = standing.details.get("accept"), standing.details.get("extract")
    if accept is not None and not facts.satisfy(accept):
        return Receipt(outcome="ignored", reason="not_accepted")
    if extract is not None:
        try:
            body = _taken_out(facts, extract, call.runtime.settings.max_payload_bytes)
        except BadExpression as error:
            return await _reject(call, standing, body, f"at $: {error}")
    if standing.gone is None and problems(standing.details.get("schema"), _text(body)):
        note_misfit(call.runtime, standing.bound.signal_id)
    once = f"resume:{standing.wait.no if standing.wait is not None else 0}"  # the same body again is the same answer
    client = client_of(call.runtime, standing.bound.workspace, "link")
    if run_of_interaction(standing.bound.signal_id) is not None:
        return await client.answer(standing.bound.signal_id, body, check=False)
    return await client.complete(standing.bound.signal_id, body, dedup_key=once, check=False)


def _taken_out(facts: Facts, extract: str, limit: int) -> Any:
    """The answer that is in a body. Raises `BadExpression` where there is none, or none that can be kept."""
    try:
        found = facts.value_of(extract)
        encode_payload(found, max_bytes=limit)
        return found
    except BadExpression as error:
        missing = error.__cause__
        why = f'there is no "{missing.args[0]}" where it looks' if isinstance(missing, KeyError) else str(error)
    except BadPayload as error:
        if error.problem == "too_large":
            raise PayloadTooLarge(f"the answer cannot be stored: {error}") from error
        why = f"what it makes of it cannot be kept: {error.message}"
    shown = extract if len(extract) <= LONGEST_SHOWN else f"{extract[:LONGEST_SHOWN]}…"
    raise BadExpression(f"the answer cannot be taken out of the body with the expression {shown}: {why}")


async def _reject(call: Call, standing: Standing, body: Any, problem: str) -> Receipt:
    """Refuse a body without an answer in it as an answer that does not fit: it is noted, kept and counted (W3, S12).

    No policy is asked: nothing could come of it that one would have to allow.
    """
    runtime, bound = call.runtime, standing.bound
    if standing.gone is None:
        note_misfit(runtime, bound.signal_id)
    text = encode(body, runtime.settings.max_payload_bytes, "the body")
    command = Complete(
        workspace=bound.workspace,
        actor="link",
        signal_id=bound.signal_id,
        message_id=runtime.ports.message_id(),
        data=text,
        digest=digest(text)[:32],
        unreadable=(problem,),
    )
    reply = (await runtime.committer.submit(command)).reply
    if isinstance(reply, Failed):
        raise reply.error
    if isinstance(reply, Denied):
        raise Forbidden(bound.signal_id, reply.reason)
    assert isinstance(reply, Receipt)
    return reply


def _text(body: Any) -> str:
    return msgspec.json.encode(body).decode()


def _reply(call: Call, standing: Standing, receipt: Receipt, filled: Mapping[str, Sequence[str]] | None) -> Any:
    match receipt.outcome:
        case "woke" | "queued" | "duplicate":
            status, message = 200, "Thank you. Your answer was received."
        case "ignored":
            status, message = 202, "This is not the answer that is waited for; the link stays open."
        case "invalid":
            errors = problems_of(receipt.problems)
            if filled is not None:
                fields = form_of(standing.details.get("schema"), filled)
                is_said = with_errors(fields, errors)
                say_what_to_choose(fields)
                said = LOOK_AGAIN if is_said else f"{LOOK_AGAIN} {NOT_TOGETHER}"
                return _form(call, standing, fields, 422, said)
            detail = "the answer does not fit what is waited for"
            raise Refusal(422, "invalid", detail, errors=errors, receipts=(receipt,))
        case _:
            reason = standing.gone or ("already_completed" if receipt.outcome == "conflict" else receipt.reason or "")
            if filled is not None:
                return _said(410, _title(standing), TOLD.get(reason, TOLD["cancelled"]), "calm")
            raise Refusal(410, "gone", GONE.get(reason, GONE["cancelled"]), receipts=(receipt,))
    if filled is not None:
        return _said(status, _title(standing), message, "good" if status == 200 else "calm")
    return Answer(receipt, status)


def _filled(raw: bytes) -> dict[str, list[str]]:
    try:
        return parse_qs(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_SENT, strict_parsing=False
        )
    except ValueError:
        detail = f"the form cannot be read; send it as UTF-8 with at most {MOST_SENT:,} fields"
        raise Refusal(400, "bad_form", detail) from None


def _check_page(call: Call, filled: Mapping[str, Sequence[str]]) -> None:
    """A form is taken from our own page only."""
    origin = header(call.scope, b"origin")
    if origin is not None and origin != "null":
        place = _place_of(origin)
        if not place or place not in (_place_of(call.runtime.settings.public_url), header(call.scope, b"host")):
            raise Refusal(403, "foreign_origin", "the form was sent from another site")
    if not hmac.compare_digest(next(iter(filled.get("form", ())), "").encode(), _nonce(call).encode()):
        raise Refusal(403, "foreign_form", "the form was not the one of this page; open the link again")


def _place_of(url: str) -> str:
    """The host and port of an address; empty where it has none, or is no address.

    >>> _place_of("https://shop.example:8443/flows"), _place_of("http://[")
    ('shop.example:8443', '')
    """
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def _is_chosen(schema: Any, filled: Mapping[str, Sequence[str]]) -> bool:
    """Whether a person did something: a button alone decides nothing, scanners press it too (T17)."""
    if answers_untouched(schema):
        return bool(filled.get("confirm"))
    return not say_what_to_choose(form_of(schema, filled))


def _title(standing: Standing) -> str:
    return str(standing.details.get("title") or "Your answer is asked for")


def _form(call: Call, standing: Standing, fields: Any, status: int = 200, message: str = "") -> Any:
    rest = left_out(standing.details.get("schema"))
    if rest.is_needed:
        return _said(status, _title(standing), TOO_MANY, "calm")
    deadline = standing.wait.deadline if standing.wait is not None else None
    return page(
        "resume.html",
        status,
        title=_title(standing),
        description=standing.details.get("description"),
        message=message,
        tone="bad",
        fields=fields,
        deadline=f"{deadline.day} {deadline:%B %Y, %H:%M} UTC" if deadline is not None else None,
        nonce=_nonce(call),
        rest=_rest(rest.count),
        confirm=answers_untouched(standing.details.get("schema")),
    )


def _rest(count: int) -> str:
    if not count:
        return ""
    more = f"There are {count:,} more fields, all optional, than fit"
    more = more if count > 1 else "There is 1 more field, which is optional, than fits"
    return f"{more} on this page. To fill in all, send the whole answer as JSON instead: {BY_JSON}"


def _said(status: int, title: str, message: str, tone: Tone = "bad", *, headers: Sequence[tuple[str, str]] = ()) -> Any:
    said = page(
        "resume.html",
        status,
        title=title,
        description=None,
        message=f"{message[:1].upper()}{message[1:]}",
        tone=tone,
        fields=None,
        deadline=None,
        nonce="",
        rest="",
        confirm=False,
    )
    said.headers.update(dict(headers))
    return said


ENDPOINTS = (
    Endpoint("GET", "/resume/{token}", show, None, "The page behind a resume link", is_public=True,
             answers={200: str, 404: str, 410: str, 429: str}, media_type="text/html"),
    Endpoint("POST", "/resume/{token}", answer, None, "Answer a resume link: the bare answer, or the form of its page",
             body=Any, answers={200: Receipt, 202: Receipt}, is_public=True, is_raw=True, takes_form=True,
             refusals=(401, 403, 404, 410, 429, 503)),
)  # fmt: skip
