"""What every test can use: each store there is, brought up by the tests themselves."""

from __future__ import annotations

import shutil
import tempfile

import hypothesis
import pytest

from tests.support.files import quick_folder
from tests.support.kinds import place_of

# How long an example takes says more of the machine than of bide.
hypothesis.settings.register_profile("bide", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("bide")

pytest_plugins = ["tests.support.fixtures"]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """The kind of store a behaviour test runs on: every one, from the day it is there. Give it to `world(store=…)`."""
    return place_of(request.param, request)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Folders of tests are in memory where there is room, so that no test waits for a disk. `--basetemp` keeps them."""
    if config.option.basetemp is not None or quick_folder() is None:
        return
    folder = tempfile.mkdtemp(prefix="bide-tests-", dir=quick_folder())
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    config.option.basetemp = f"{folder}/tests"


# Those of them that take longest come first: no process is left with a long one when the others have nothing to do.
LONG = (
    "tests/typing/",
    "tests/test_csv_payments.py",
    "tests/test_demo.py",
    "tests/chaos/",
    "tests/simulation/",
    "tests/engine/test_processes.py",
    "tests/engine/test_kill_matrix.py",
    "tests/engine/test_killed_items.py",
    "tests/server/test_schemathesis.py",
    "tests/server/test_pages_in_a_browser.py",
    "tests/language/test_fuzz.py",
    "tests/stores/test_statement_orders",
    "tests/stores/test_stream_orders.py",
    "tests/cli/",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
