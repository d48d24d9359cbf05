"""Signals and answers over HTTP."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec

from bide.authoring.checks import is_name
from bide.client.refusals import raise_late, raise_refusal, raise_refused_answer
from bide.core.commands import Receipt
from bide.core.holding import is_held
from bide.core.records import FINAL, OPEN_WAIT
from bide.engine.runtime import Runtime
from bide.errors import BadInput, Forbidden, NoTarget, SignalNotFound
from bide.server.calls import Answer, Call, Endpoint, problems_of
from bide.server.interactions import principal
from bide.server.problems import FieldError, Refusal, telling
from bide.server.runs import has_definition
from bide.stores.interface import WaitFilter
from bide.views import SignalTo

MOST_SIGNALS = 1000
MOST_BYTES = 16 * 1024 * 1024  # of all signals that are delivered in one commit; each has its own limit


class SignalRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signal for a run."""

    name: str
    payload: Any = None
    dedup_key: str | None = None


class StartToSignal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run is started with where no live run holds the correlation key."""

    definition: str
    input: Any = None
    correlation_scope: Literal["live", "forever"] = "live"
    version: str | None = None
    delay: str | int | float | None = None
    queue: str | None = None
    priority: int | None = None
    tags: dict[str, str] | None = None


class SignalKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signal for the run that holds a correlation key; with `start` the run is started where nobody holds it."""

    correlation_key: str
    name: str
    payload: Any = None
    dedup_key: str | None = None
    start: StartToSignal | None = None


class SignalAny(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of many signals; `target` is a run's id or a correlation key."""

    target: str
    name: str
    payload: Any = None
    dedup_key: str | None = None


class SignalMany(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Signals that are delivered in one commit, all of them or none."""

    signals: Annotated[list[SignalAny], msgspec.Meta(max_length=MOST_SIGNALS)]


class ManyReceipts(msgspec.Struct, frozen=True, kw_only=True):
    """One receipt for each signal, in their order."""

    receipts: list[Receipt]


class CompleteSignal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer to a signal id; `run_id` says which run is meant after a collision, `by` who answers.

    `hold` keeps it for the first wait of that id, for so long, where none is open.
    """

    data: Any
    run_id: str | None = None
    by: str | None = None
    dedup_key: str | None = None
    hold: str | float | None = None
    reason: str = ""


async def complete(call: Call) -> Answer:
    asked = call.read(CompleteSignal)
    signal_id = _signal_id(call)
    by = principal(call, signal_id, asked.by) if asked.by is not None else None
    receipt = await call.client.complete(
        signal_id,
        asked.data,
        run_id=asked.run_id,
        by=by,
        dedup_key=asked.dedup_key,
        hold=asked.hold,
        reason=asked.reason,
        check=False,
    )
    with telling(receipt):
        if receipt.problems:
            errors = problems_of(receipt.problems)
            raise Refusal(422, "invalid", "the data does not fit what the wait takes", errors=errors)
        raise_late(receipt, signal_id)
        raise_refused_answer(receipt, signal_id, asked.dedup_key)
    is_held = receipt.outcome == "queued" and receipt.wait_id is None
    return Answer(receipt, 202 if is_held else 200)


def _signal_id(call: Call) -> str:
    signal_id = call.path["signal_id"]
    if not is_name(signal_id) or signal_id.startswith(("run_", "wait_", "int_")):
        raise SignalNotFound(signal_id)  # no wait could hold it
    return signal_id


async def signal_exists(call: Call) -> None:
    await _standing(call)


async def signal_is_open(call: Call) -> None:
    receipt = await _standing(call)
    if receipt is not None:
        raise_late(receipt, call.path["signal_id"])
        raise_refused_answer(receipt, call.path["signal_id"])


async def _standing(call: Call) -> Receipt | None:
    """How an answer would be refused whatever its data; None where it would not."""
    signal_id = _signal_id(call)
    body = call.body if isinstance(call.body, dict) else {}
    receipt = await standing(call.runtime, call.key.workspace, signal_id, body.get("run_id"))
    if receipt is not None and receipt.wait_id is None and body.get("hold"):
        return None  # it would be held
    if receipt is not None and receipt.outcome == "no_target":
        raise SignalNotFound(signal_id)
    return receipt


async def standing(runtime: Runtime, workspace: str, signal_id: str, only_run: Any) -> Receipt | None:
    """As the rule in `bide.core.completing` says it; *only_run* is which run is meant, where a run was named (F5)."""
    name = await runtime.store.name(workspace, "signal", signal_id)
    if name is not None and is_held(name):
        return Receipt(outcome="late", message_id=name.message_id, reason="already_completed")
    no = int(name.message_id.rstrip("!")) if name is not None else 0
    wanted = WaitFilter(workspace=workspace, run_id=name.run_id, status=None) if name is not None else None
    found = await runtime.store.waits(wanted, after=(wanted.run_id or "", no - 1), limit=1) if wanted else ()
    is_other = name is not None and isinstance(only_run, str) and only_run != name.run_id
    if name is None or not found or found[0].status == "cancelled" or is_other:
        return Receipt(outcome="no_target", reason="not_found")
    if found[0].status not in OPEN_WAIT:
        return Receipt(outcome="late", reason="timed_out" if found[0].status == "timed_out" else "already_completed")
    if name.has_collided and not isinstance(only_run, str):
        return Receipt(outcome="conflict", run_id=name.run_id, reason="collision")
    return None


async def signal_run(call: Call) -> Answer:
    asked = call.read(SignalRun)
    run_id = call.path["run_id"]
    if not run_id.startswith("run_"):
        raise NoTarget(run_id)
    return await _signal(call, run_id, asked.name, asked.payload, asked.dedup_key)


async def signal_key(call: Call) -> Answer:
    asked = call.read(SignalKey)
    if asked.correlation_key.startswith("run_"):
        raise BadInput("correlation_key is a run's id; use POST /v1/runs/{id}/signals")
    if asked.start is None:
        return await _signal(call, asked.correlation_key, asked.name, asked.payload, asked.dedup_key)
    if not call.key.may("runs:start"):
        raise Forbidden("this call", "with `start` the key needs the scope runs:start")
    options = msgspec.structs.asdict(asked.start)
    receipt = await call.client.start_or_signal(
        options.pop("definition"),
        options.pop("input"),
        correlation_key=asked.correlation_key,
        name=asked.name,
        payload=asked.payload,
        dedup_key=asked.dedup_key,
        check=False,
        **options,
    )
    return _received(receipt, asked.correlation_key, asked.name, asked.dedup_key)


async def signal_many(call: Call) -> Answer:
    asked = call.read(SignalMany)
    wanted = [SignalTo(one.target, one.name, one.payload, one.dedup_key) for one in asked.signals]
    receipts = await call.client.signal_many(wanted, check=False)
    with telling(*receipts):
        for at, (one, receipt) in enumerate(zip(asked.signals, receipts, strict=True)):
            _refuse(receipt, one.target, one.dedup_key, f"$.signals[{at}].payload")
    return Answer(ManyReceipts(receipts=receipts), 202)


async def _signal(call: Call, target: str, name: str, payload: Any, dedup_key: str | None) -> Answer:
    receipt = await call.client.signal(target, name, payload, dedup_key, check=False)
    return _received(receipt, target, name, dedup_key)


def _received(receipt: Receipt, target: str, name: str, dedup_key: str | None) -> Answer:
    with telling(receipt):
        _refuse(receipt, target, dedup_key, _wrong_field(target, name, dedup_key))
    return Answer(receipt, 202)


def _wrong_field(target: str, name: str, dedup_key: str | None) -> str:
    """Where a signal that cannot be taken is wrong."""
    given = {"$.correlation_key": target, "$.name": name, "$.dedup_key": dedup_key if dedup_key is not None else "none"}
    return next((path for path, text in given.items() if not is_name(text)), "$.payload")


def _refuse(receipt: Receipt, target: str, dedup_key: str | None, path: str) -> None:
    if receipt.outcome == "invalid":
        errors = (FieldError(path, receipt.reason or "it does not fit"),)
        raise Refusal(422, "invalid", "the signal cannot be taken", errors=errors)
    raise_refusal(receipt, target, dedup_key)


async def takes_signals(call: Call) -> None:
    await _can_be_had(call, call.path["run_id"])


async def key_is_held(call: Call) -> None:
    body = call.body if isinstance(call.body, dict) else {}
    if isinstance(body.get("start"), dict):
        await has_definition(replace(call, body=body["start"]))
    elif body.get("start") is None:
        await _can_be_had(call, body.get("correlation_key"))


async def all_can_be_had(call: Call) -> None:
    signals = call.body.get("signals") if isinstance(call.body, dict) else None
    for one in signals[:MOST_SIGNALS] if isinstance(signals, list) else ():
        await _can_be_had(call, one.get("target") if isinstance(one, dict) else None)


async def _can_be_had(call: Call, target: Any) -> None:
    """Raises where nobody would ever read a signal; a target that cannot be one is wrong for another reason."""
    if not is_name(target):
        return
    store, workspace = call.runtime.store, call.key.workspace
    run_id = target if target.startswith("run_") else await store.holder(workspace, target)
    row = await store.run(workspace, run_id) if run_id is not None else None
    if row is None or row.status in FINAL:
        raise NoTarget(target, row.status if row is not None else "not_found")


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/signals/{signal_id}/complete", complete, "signals:send", "Answer the wait that holds a signal id",
        body=CompleteSignal, answers={200: Receipt, 202: Receipt}, found=signal_exists, is_open=signal_is_open,
        payloads=("data",), refusals=(404, 409, 410), commits=True,
    ),
    Endpoint(
        "POST", "/v1/runs/{run_id}/signals", signal_run, "signals:send", "Put a signal into a run's inbox",
        body=SignalRun, answers={202: Receipt}, found=takes_signals, payloads=("payload",), refusals=(404, 409),
        uses=("inbox",), commits=True,
    ),
    Endpoint(
        "POST", "/v1/signals", signal_key, "signals:send", "Signal the run that holds a correlation key, or start it",
        body=SignalKey, answers={202: Receipt}, found=key_is_held, payloads=("payload",), refusals=(404, 409),
        envelope=2, uses=("inbox",), commits=True,
    ),
    Endpoint(
        "POST", "/v1/signals/many", signal_many, "signals:send", "Deliver many signals in one commit, or none",
        body=SignalMany, answers={202: ManyReceipts}, found=all_can_be_had, max_bytes=MOST_BYTES, refusals=(404, 409),
        envelope=3, uses=("inbox",), commits=True,
    ),
)  # fmt: skip
