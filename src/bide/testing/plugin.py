"""The pytest fixture `bide_world`; the ini option `bide_app` names the app as `module:attribute`."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

try:  # in its strict mode pytest-asyncio runs no async fixture but those made by its own decorator
    from pytest_asyncio import fixture
except ModuleNotFoundError:  # another plugin runs async tests
    fixture: Any = pytest.fixture  # type: ignore[no-redef]  # the same to those who use it

if TYPE_CHECKING:
    from bide.testing.world import World


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("bide_app", "the bide app that the bide_world fixture runs, as module:attribute", default="")


@fixture
async def bide_world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A `bide.testing.world` of the app named by the ini option `bide_app`."""
    from bide.app import App
    from bide.testing.world import world

    named = str(request.config.getini("bide_app"))
    module, separator, attribute = named.partition(":")
    if not separator:
        raise pytest.UsageError("set bide_app = module:attribute in the pytest ini options to use bide_world")
    app = getattr(importlib.import_module(module), attribute)
    if not isinstance(app, App):
        raise pytest.UsageError(f"bide_app = {named} is a {type(app).__name__}, not a bide.App")
    async with world(app) as made:
        yield made
