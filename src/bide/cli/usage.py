"""What is typed on the command line, read and checked: what cannot be read is a usage problem (exit code 2)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from bide.authoring.checks import MOST_LISTED
from bide.core.durations import BadDuration, parse_duration
from bide.core.payloads import BadPayload, decode_json
from bide.errors import PayloadTooLarge

AppOption = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:APP", envvar="BIDE_APP", help="The app: module:app or a file.py."),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="URL", help="The store, in place of the app's own (BIDE_STORE).", show_default=False
    ),
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="A server, in place of an app and its store (BIDE_URL).", show_default=False
    ),
]
KeyOption = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="The key of the server (BIDE_KEY).", show_default=False)
]
WorkspaceOption = Annotated[str, typer.Option("--workspace", metavar="NAME", help="The workspace.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, errors too.")]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run id, or the correlation key of a live run.")]
LimitOption = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=MOST_LISTED, help="At most this many.")]
CursorOption = Annotated[
    str | None, typer.Option("--cursor", metavar="CURSOR", help="Go on after an earlier page.", show_default=False)
]


NEEDS_STORE = "this verb works on the store itself, which no server lets in: give --app or --store"


class StoreCommand(TyperCommand):
    """A verb that cannot work over HTTP, and says so rather than that it knows no `--url`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if any(word == "--url" or word.startswith("--url=") for word in args):
            raise UsageProblem(f"`{ctx.command_path}`: {NEEDS_STORE}")
        return super().parse_args(ctx, args)


class UsageProblem(Exception):
    """What was typed cannot be read or does not exist."""

    def __init__(self, message: str, code: str = "usage") -> None:
        super().__init__(message, code)
        self.message, self.code = message, code

    def __str__(self) -> str:
        return self.message


def read_json(text: str | None, what: str, max_bytes: int) -> Any:
    """The value of a JSON argument: the text itself, `@file`, or `-` for stdin. None where it is left out."""
    if text is None:
        return None
    raw = _raw(text, what)
    if len(raw) > max_bytes:
        raise PayloadTooLarge(f"{what} has {len(raw)} bytes; at most {max_bytes} can be stored (max_payload_bytes)")
    try:
        return decode_json(raw, max_bytes=max_bytes)
    except BadPayload as error:
        hint = "" if text == "-" or text.startswith("@") else f"; quote it for the shell, as in {_quoted(text)}"
        raise UsageProblem(f"{what} is not JSON that bide can take: {error}{hint}", "bad_input") from error


def _quoted(text: str) -> str:
    """A plain word was meant as a text; anything else gets an example.

    >>> print(_quoted("Ann"), _quoted("{order: 1}"))
    '"Ann"' '{"order": 1}'
    """
    return f"""'"{text}"'""" if text.isalnum() else """'{"order": 1}'"""


def _raw(text: str, what: str) -> bytes:
    if text == "-":
        return sys.stdin.buffer.read()
    if not text.startswith("@"):
        return text.encode("utf-8", "surrogateescape")
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise UsageProblem(f"{what} cannot be read from {text[1:]!r}: {error.strerror}", "bad_input") from error


def read_duration(text: str | None, option: str) -> timedelta | None:
    if text is None:
        return None
    try:
        return parse_duration(text)
    except BadDuration as error:
        raise UsageProblem(f"{option}: {error}", "bad_input") from error


def is_duration(text: str) -> bool:
    """No JSON text is also a duration, so `--wait` can tell its value from the input that follows it."""
    try:
        parse_duration(text)
    except BadDuration:
        return False
    return True


def read_tags(texts: Sequence[str]) -> dict[str, str]:
    tags = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not key or not separator:
            raise UsageProblem(f"--tag {text!r}: write it as name=value", "bad_input")
        tags[key] = value
    return tags


def check_choice(value: str | None, choices: Sequence[str], option: str) -> str | None:
    if value is not None and value not in choices:
        raise UsageProblem(f"{option} {value!r}: give one of {', '.join(choices)}", "bad_input")
    return value
