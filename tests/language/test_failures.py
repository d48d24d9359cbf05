"""What fails in a machine file: what `error` says of it, and what models answer that is none (L2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import bide
from bide.authoring.language.providers import SHAPES, provider_from
from bide.authoring.language.sending import HttpFailed, HttpRefused, HttpTimedOut, send
from bide.testing import world
from tests.language.test_running import app_of, really
from tests.support.web import web

SEEN = "{step: error.step, type: error.type, code: error.code, message: error.message}"


def machine(steps: str) -> str:
    """A machine whose answer is what `error` was."""
    inner = "\n".join(f"        {line}" for line in steps.strip("\n").splitlines())
    ends = f"        on failure\n            compute result\n                {SEEN}\n"
    return f"machine m\n    implements\n{inner}\n{ends}"


def an_app(tmp_path: Path, text: str) -> bide.App:
    app = app_of(tmp_path, text)

    @app.action("hangs")
    async def hangs() -> None:
        await asyncio.Event().wait()

    @app.action("denied")
    async def denied() -> None:
        raise bide.PolicyDenied("start", "payout", "not today")

    @app.action("broken")
    async def broken() -> None:
        raise ValueError("it broke")

    @app.workflow("child", retries=0)
    async def child(step: bide.Step, input: dict[str, Any]) -> Any:
        await step.wait_for_signal("gate", signal=f"gate-{step.run_id}", timeout="1h")

    return app


CALL = 'action act call\n    machine: "{}"\n    retry: 0\n'


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (CALL.format("hangs") + '    timeout: "20ms"', ("act", "timeout", "TimeoutError")),
        (CALL.format("denied"), ("act", "permission_denied", "PolicyDenied")),
        (CALL.format("broken"), ("act", "runtime", "ValueError")),
        ('action act call\n    machine: "child"\n    timeout: "1m"', ("act", "timeout", "RunTimeoutError")),
        ('action act call\n    machine: "child"', ("act", "runtime", "RunFailedError")),
        ('wait for it\n    timeout: "1m"', ("it", "timeout", "WaitTimeoutError")),
        ("compute it\n    1 / 0", ("it", "runtime", "BadExpression")),
        (
            "compute before\n    1\nfor each item in [1]\n    compute it\n        1 / 0",
            ("it", "runtime", "BadExpression"),
        ),
    ],
)
async def test_L2_an_error_says_which_step_failed_and_of_what_kind_it_is(
    store_url: str, tmp_path: Path, steps: str, expected: tuple[str, str, str]
) -> None:
    async with world(an_app(tmp_path, machine(steps)), store=store_url) as there:
        run = await there.start("m", {})
        await there.advance("2h")
        seen = await there.result(run.id)
        assert (seen["step"], seen["type"], seen["code"]) == expected
        assert seen["message"]


async def test_L2_a_child_that_a_policy_stopped_is_a_denial(store_url: str, tmp_path: Path) -> None:
    app = an_app(tmp_path, machine('action act call\n    machine: "child"'))
    app.policy(lambda action: action.kind != "suspend" or action.definition == "m")
    async with world(app, store=store_url) as there:
        seen = await there.result((await there.start("m", {})).id)
        assert (seen["step"], seen["type"], seen["code"]) == ("act", "permission_denied", "RunFailedError")


@asynccontextmanager
async def silence() -> AsyncIterator[str]:
    """A server that takes requests and never answers."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        over.set()
        server.close()
        await server.wait_closed()


async def test_L2_an_http_action_that_gets_no_answer_in_time_is_a_timeout(tmp_path: Path) -> None:
    async with silence() as url:
        steps = f'action act http\n    url: "{url}"\n    timeout: "50ms"\n    retry: 0\n'
        async with world(an_app(tmp_path, machine(steps))) as there:
            seen = await there.result((await there.start("m", {})).id)
        assert (seen["step"], seen["type"]) == ("act", "timeout")


async def test_L2_an_answer_without_end_of_its_nesting_is_a_failure_of_the_step() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"[" * 100_000
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
        writer.write(b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(HttpFailed, match="nested too deeply"):
            await send("GET", url, {}, None, timedelta(minutes=2), 1_000_000)


# ---------------------------------------------------------------- models

EMPTY: dict[str, Any] = {"anthropic": {"content": []}, "openai": {"choices": []}}
OTHER: dict[str, Any] = {
    "anthropic": {"content": [{"type": "text", "text": "I would rather not"}]},
    "openai": {"choices": [{"message": {"content": "I would rather not"}}]},
}
DEEP: dict[str, Any] = {"anthropic": {"content": []}, "openai": {"choices": [{"message": {"content": "[" * 100_000}}]}}
SCHEMA = {"type": "object", "properties": {"fine": {"type": "boolean"}}}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(
    ("status", "said", "error", "words"),
    [
        (401, {"error": "bad key"}, HttpRefused, "answered 401"),
        (400, "no such model", HttpRefused, "answered 400"),
        (429, {"error": "slow down"}, HttpFailed, "answered 429"),
        (500, "", HttpFailed, "answered 500"),
        (200, EMPTY, HttpFailed, "the model gave no"),
        (200, OTHER, HttpFailed, "the model gave no tool_use block|is no JSON"),
        (200, DEEP, HttpFailed, "the model gave no tool_use block|nested too deeply"),
        (200, "not even JSON", HttpFailed, "the model gave no"),
        (200, ["not", "an", "object"], HttpFailed, "the model gave no"),
        (200, None, HttpFailed, "the model gave no"),
    ],
)
async def test_L2_what_a_model_answers_that_is_none_is_said_in_words(
    name: str, status: int, said: Any, error: type[Exception], words: str
) -> None:
    """A refusal is not tried again, the rest is; what the model said to the key is not shown."""
    answer = said[name] if said in (EMPTY, OTHER, DEEP) else said
    async with web(lambda asked: (status, answer)) as (url, _):
        _, key, base = SHAPES[name]
        provider = provider_from({key: "key-1", base: url}, name)
        assert provider is not None
        with pytest.raises(error, match=words) as raised:
            await provider.ask("model-1", "Is it fine?", SCHEMA)
        assert "key-1" not in str(raised.value)


@pytest.mark.parametrize("name", SHAPES)
async def test_L2_without_a_schema_the_answer_is_a_text(name: str) -> None:
    async with web(lambda asked: (200, OTHER[name])) as (url, _):
        _, key, base = SHAPES[name]
        provider = provider_from({key: "key-1", base: url}, name)
        assert provider is not None
        assert await provider.ask("model-1", "Is it fine?", None) == "I would rather not"


@pytest.mark.parametrize("name", SHAPES)
async def test_L2_a_model_has_the_time_that_the_step_says(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    """`timeout:` of an `ask` counts, longer or shorter than what providers have else."""
    long = provider_from({SHAPES[name][1]: "key-1"}, name, timedelta(minutes=5))
    assert vars(long)["_timeout"] == timedelta(minutes=5)
    async with silence() as url:
        monkeypatch.setenv(SHAPES[name][1], "key-1")
        monkeypatch.setenv(SHAPES[name][2], url)
        provider = provider_from({SHAPES[name][1]: "key-1", SHAPES[name][2]: url}, name, timedelta(milliseconds=20))
        assert provider is not None
        with pytest.raises(HttpTimedOut, match="did not answer within"):
            await provider.ask("model-1", "?", None)
        asks = f'ask check, using: "{name}:model-1"\n    with task "?"\n    retry: 0\n    timeout: "50ms"'
        seen = await really(app_of(tmp_path, machine(asks)), "m", {})
        assert (seen["step"], seen["type"]) == ("check", "timeout")
