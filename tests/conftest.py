"""What every test can use: each store there is, brought up by the tests themselves."""

from __future__ import annotations

import os
import shutil
import tempfile

import hypothesis
import pytest

from tests.support.files import quick_folder
from tests.support.kinds import place_of
from tests.support.postgres import ENVIRONMENT_VARIABLE

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
    """Folders of tests are in memory where there is room, so that no test waits for a disk. `--basetemp` keeps them.

    Servers that tests start have no TLS: no driver asks for it at each of thousands of connections.
    """
    if ENVIRONMENT_VARIABLE not in os.environ:
        os.environ.setdefault("PGSSLMODE", "disable")
    if config.option.basetemp is not None or quick_folder() is None:
        return
    folder = tempfile.mkdtemp(prefix="bide-tests-", dir=quick_folder())
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    config.option.basetemp = f"{folder}/tests"


# Tests that take long come first, the longest of them before the others: no process is left with a long one when the
# others have nothing to do.
LONG = (
    "tests/chaos/",
    "tests/server/test_no_5xx.py",
    "tests/server/test_schemathesis.py",
    "tests/typing/",
    "tests/core/test_schema.py",
    "tests/transports/test_kafka.py",
    "tests/engine/test_processes.py",
    "tests/simulation/",
    "tests/engine/test_kill_matrix.py",
    "tests/engine/test_killed_items.py",
    "tests/test_csv_payments.py",
    "tests/test_demo.py",
    "tests/server/test_pages_in_a_browser.py",
    "tests/language/test_fuzz.py",
    "tests/stores/test_statement_orders",
    "tests/stores/test_stream_orders.py",
    "tests/cli/",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--dist worksteal` each process begins with a part of its own, as many tests as the others and in this
    order, and takes from the end of what others have left when it is done: each part begins with its share of the long
    tests. Those of one file stay together, for the servers they share."""
    long = sorted((item for item in items if _place(item) < len(LONG)), key=_place)
    others = [item for item in items if _place(item) == len(LONG)]
    parts = int(getattr(config, "workerinput", {}).get("workercount", 1))
    files = list(dict.fromkeys(item.path for item in long))
    most = len(items) // parts
    items.clear()
    for at in range(parts):
        share = [item for item in long if files.index(item.path) % parts == at]
        rest = max(most - len(share), 0) if at < parts - 1 else len(others)
        items += share + others[:rest]
        del others[:rest]


def _place(item: pytest.Item) -> int:
    return next((at for at, beginning in enumerate(LONG) if item.nodeid.startswith(beginning)), len(LONG))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """For `-n auto`, one more than there are cores: half of the time a test waits for a server or another process."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return 1 + (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
