"""Models that `ask … using "provider:model"` speaks to: a small protocol, and the two shapes that most of them have."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Protocol

import msgspec

from bide.authoring.language.sending import DEFAULT_TIMEOUT, HttpFailed, send

MOST_BYTES: Final = 4 * 1024 * 1024
MOST_TOKENS: Final = 4096


class Provider(Protocol):
    """Answers a task. With a schema the answer is an object that fits it; without one, a text.

    Whatever it raises fails that try of the step; `bide.NonRetryable` fails it at once.

    >>> class Parrot:
    ...     async def ask(self, model, task, schema):
    ...         return {"said": task}
    """

    async def ask(self, model: str, task: str, schema: Mapping[str, Any] | None) -> Any: ...


class AnthropicShaped:
    """A provider that speaks as Anthropic's messages API does."""

    def __init__(self, key: str, url: str = "https://api.anthropic.com", timeout: timedelta = DEFAULT_TIMEOUT) -> None:
        self._key, self._url, self._timeout = key, url.rstrip("/"), timeout

    async def ask(self, model: str, task: str, schema: Mapping[str, Any] | None) -> Any:
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": MOST_TOKENS,
            "messages": [{"role": "user", "content": task}],
        }
        if schema is not None:
            tool = {"name": "answer", "description": "Give the answer.", "input_schema": dict(schema)}
            body |= {"tools": [tool], "tool_choice": {"type": "tool", "name": "answer"}}
        headers = {"x-api-key": self._key, "anthropic-version": "2023-06-01"}
        said = await send("POST", f"{self._url}/v1/messages", headers, body, self._timeout, MOST_BYTES)
        blocks = _at(said["body"], "content")
        wanted = "tool_use" if schema is not None else "text"
        for block in blocks if isinstance(blocks, list) else ():
            if isinstance(block, dict) and block.get("type") == wanted:
                return block.get("input" if schema is not None else "text")
        raise HttpFailed(f"the model gave no {wanted} block")


class OpenAIShaped:
    """A provider that speaks as OpenAI's chat completions do."""

    def __init__(self, key: str, url: str = "https://api.openai.com/v1", timeout: timedelta = DEFAULT_TIMEOUT) -> None:
        self._key, self._url, self._timeout = key, url.rstrip("/"), timeout

    async def ask(self, model: str, task: str, schema: Mapping[str, Any] | None) -> Any:
        body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": task}]}
        if schema is not None:
            form = {"name": "answer", "schema": dict(schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        headers = {"authorization": f"Bearer {self._key}"}
        said = await send("POST", f"{self._url}/chat/completions", headers, body, self._timeout, MOST_BYTES)
        content = _at(said["body"], "choices", 0, "message", "content")
        if not isinstance(content, str):
            raise HttpFailed("the model gave no content")
        if schema is None:
            return content
        try:
            return msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError):
            raise HttpFailed("the model's answer is no JSON, or nested too deeply") from None


def _at(value: Any, *path: str | int) -> Any:
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value


SHAPES: Final[Mapping[str, tuple[type[AnthropicShaped | OpenAIShaped], str, str]]] = {
    "anthropic": (AnthropicShaped, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    "openai": (OpenAIShaped, "OPENAI_API_KEY", "OPENAI_BASE_URL"),
}


def provider_from(environment: Mapping[str, str], name: str, limit: timedelta | None = None) -> Provider | None:
    """The provider that the environment has a key for; *limit* is how long it may take to answer."""
    if name not in SHAPES:
        return None
    shape, key, url = SHAPES[name]
    if not environment.get(key):
        return None
    given = {"url": environment[url]} if environment.get(url) else {}
    return shape(environment[key], timeout=limit or DEFAULT_TIMEOUT, **given)


class Surroundings:
    """What machine files of one app can reach: Python actions, model providers, secrets."""

    def __init__(self) -> None:
        self.actions: dict[str, Any] = {}
        self.providers: dict[str, Provider] = {}
        self.environment: Mapping[str, str] = os.environ

    def provider(self, name: str, limit: timedelta | None = None) -> Provider | None:
        return self.providers.get(name) or provider_from(self.environment, name, limit)

    def secret(self, name: str) -> str:
        """The value of a secret, read when it is used. Raises `LookupError`."""
        for variable in (f"BIDE_SECRET_{name}", name):
            if variable in self.environment:
                return self.environment[variable]
        raise LookupError(f"there is no secret {name!r}; set BIDE_SECRET_{name} in the environment of the worker")
