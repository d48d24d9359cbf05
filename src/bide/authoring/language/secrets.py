"""Secrets that a step used: what comes back from it is stored, and must have none of them."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

from bide.core.redaction import COVERED, SHORTEST, scrubbed

CUT = "…"  # ends a text of which only the beginning is shown

_LOGGERS = ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.http2", "httpcore.proxy", "httpcore.socks")
_is_quiet: ContextVar[bool] = ContextVar("is_quiet", default=False)


class UsedSecrets:
    """Reads secrets for one try of a step, and keeps in mind which.

    >>> used = UsedSecrets(lambda name: "s3cr3t")
    >>> used("TOKEN")
    's3cr3t'
    >>> used.covered({"echo": ["the key s3cr3t is unknown"]})
    {'echo': ['the key [redacted] is unknown']}
    """

    def __init__(self, read: Callable[[str], str]) -> None:
        self._read = read
        self._forms: set[str] = set()

    def __call__(self, name: str) -> str:
        value = self._read(name)
        if len(value) >= SHORTEST:
            escaped = msgspec.json.encode(value).decode()[1:-1]
            self._forms |= {value, quote(value), quote(value, safe=""), quote_plus(value), escaped}
        return value

    def covered(self, value: Any) -> Any:
        """The value without the secrets, wherever they stand in it."""
        match value:
            case dict():
                return {self.covered(key): self.covered(inner) for key, inner in value.items()}
            case list() | tuple():
                return [self.covered(inner) for inner in value]
            case str():
                return self._text(value)
            case _:
                return value

    def _text(self, text: str) -> str:
        forms = sorted(self._forms, key=len, reverse=True)
        text = scrubbed(text, forms)
        if text.endswith(CUT):  # perhaps in the midst of one
            rest = text[: -len(CUT)]
            for form in forms:
                for length in range(len(form) - 1, SHORTEST - 1, -1):
                    if rest.endswith(form[:length]):
                        return rest[:-length] + COVERED + CUT
        return text

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Errors that come out of here have none of the secrets in what they say, and HTTP clients log nothing here:
        they log addresses."""
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_is_heard)
        was_quiet = _is_quiet.set(True)
        try:
            yield
        except Exception as error:
            error.args = tuple(self.covered(part) for part in error.args)
            raise
        finally:
            _is_quiet.reset(was_quiet)

    def guarding(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """The same call, and as async as it was, without the secrets in what comes of it."""
        if inspect.iscoroutinefunction(call):

            @functools.wraps(call)
            async def guarded_call() -> Any:
                with self.guarded():
                    return self.covered(await call())

            return guarded_call

        @functools.wraps(call)
        def guarded_plain_call() -> Any:
            with self.guarded():
                given = call()
            return self._later(given) if inspect.isawaitable(given) else self.covered(given)

        return guarded_plain_call

    async def _later(self, given: Awaitable[Any]) -> Any:
        with self.guarded():
            return self.covered(await given)


def _is_heard(record: logging.LogRecord) -> bool:
    return not _is_quiet.get()
