"""Settings: from arguments, the environment (`BIDE_X_Y` for `x_y`) or `bide.toml`, in that order."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bide.core.durations import BadDuration, parse_duration
from bide.errors import BadConfiguration

DEFAULT_STORE = "sqlite:///bide.db"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Settings:
    """Every setting with its default. `sources` says where each value came from."""

    store: str = DEFAULT_STORE
    max_payload_bytes: int = 512 * 1024
    poll_interval: timedelta = timedelta(seconds=1)
    sweep_interval: timedelta = timedelta(seconds=30)
    lease: timedelta = timedelta(seconds=30)
    outbox_lease: timedelta = timedelta(minutes=1)
    grace: timedelta = timedelta(seconds=30)
    retention: timedelta = timedelta(days=30)
    event_retention: timedelta = timedelta(days=7)
    concurrency: int = 200
    threads: int = 32
    thread_grace: timedelta = timedelta(minutes=10)
    max_claims: int = 5
    max_steps_inline: int = 100
    batch: int = 500
    hints: bool = True
    gc_threshold: int = 50_000
    await_aggregate_max_input_items: int = 10_000
    await_aggregate_max_output_items: int = 10_000
    max_unit_bytes: int = 16 * 1024 * 1024
    ledger_secrets: str = ""
    payload_keys: str = field(default="", repr=False)
    public_url: str = "http://localhost:8000"
    allowed_hosts: str = ""
    allow_http: bool = False
    private_hosts: str = ""
    resume_secrets: str = ""
    longest_poll: timedelta = timedelta(seconds=60)
    max_inbox: int = 100_000
    workspace_rate: int = 0
    workspace_max_runs: int = 0
    workspace_max_waits: int = 0
    workspace_max_inbox: int = 0
    connections_per_address: int = 0
    metrics_port: int = 0
    metrics_host: str = "127.0.0.1"
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)


def load_settings(
    arguments: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Settings:
    """Gather the settings; the first of arguments, environment and file that names one wins.

    >>> load_settings({"concurrency": 5}, {}).concurrency
    5
    """
    environment = os.environ if environment is None else environment
    known = [setting.name for setting in fields(Settings) if setting.name != "sources"]
    for name in arguments or {}:
        if name not in known:
            raise BadConfiguration(f"there is no setting {name!r}; there are: {', '.join(known)}")
    from_file = _read(file if file is not None else Path("bide.toml"))
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for setting in fields(Settings):
        if setting.name == "sources":
            continue
        variable = f"BIDE_{setting.name.upper()}"
        for source, given in (
            ("argument", (arguments or {}).get(setting.name)),
            (variable, environment.get(variable)),
            ("bide.toml", from_file.get(setting.name)),
        ):
            if given is not None:
                values[setting.name] = _parse(setting.name, getattr(Settings, setting.name), given, source)
                sources[setting.name] = source
                break
    return Settings(**values, sources=sources)


def names_of(text: str) -> list[str]:
    """The names of a setting that lists several.

    >>> names_of("shop.example, *.shop.example,")
    ['shop.example', '*.shop.example']
    """
    return [name.strip().lower() for name in text.split(",") if name.strip()]


def check_public_url(settings: Settings) -> None:
    """Raise `BadConfiguration` where the links that are sent lead nowhere, or could be read on their way (T15).

    >>> check_public_url(Settings(public_url="https://shop.example/flows"))
    """
    try:
        url = urlsplit(settings.public_url)
        is_url = url.scheme in ("http", "https") and bool(url.hostname) and not (url.query or url.fragment)
    except ValueError:
        is_url = False
    if not is_url:
        raise BadConfiguration(
            f"public_url is {settings.public_url!r}, and links begin with it: write https://host or https://host/path"
        )
    is_shared = settings.store.startswith(("postgresql:", "postgres:"))
    if is_shared and url.scheme == "http" and url.hostname not in LOOPBACK and not settings.allow_http:
        raise BadConfiguration(
            f"public_url is {settings.public_url!r}: whoever listens on the way could use the links that are sent; "
            "give it with https://, or set BIDE_ALLOW_HTTP=true where nobody can listen"
        )


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"{file} cannot be read as TOML: {error}") from error


def _parse(name: str, default: Any, given: Any, source: str) -> Any:
    try:
        if isinstance(default, timedelta):
            return parse_duration(given)
        if isinstance(default, bool):
            return given if isinstance(given, bool) else {"1": True, "true": True, "0": False, "false": False}[given]
        if isinstance(default, int):
            number = int(given)
            if number < 1:
                raise ValueError("it must be at least 1")
            return number
        return str(given)
    except (BadDuration, ValueError, KeyError) as error:
        raise BadConfiguration(f"setting {name} is {given!r} (from {source}), which cannot be used: {error}") from error
