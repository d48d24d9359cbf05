"""The pytest fixture `bide_world`, and where worlds keep their stores (§12)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

import bide
from bide.testing import places, world
from tests.support.postgres import Server

pytest_plugins = ["pytester"]

SHOP = """
import bide

app = bide.App("shop", store="sqlite:///shop.db")

@app.workflow("order")
async def order(step: bide.Step) -> str:
    return (await step.receive("paid", "paid", timeout="1h")).payload
"""
TEST = """
import pytest

@pytest.mark.asyncio
async def test_it(bide_world):
    run = await bide_world.start("order")
    await bide_world.signal(run.id, "paid", "yes")
    assert await bide_world.result(run.id) == "yes"
"""


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_the_fixture_runs_the_app_that_is_named(pytester: pytest.Pytester, mode: str) -> None:
    pytester.makepyfile(shop=SHOP, test_shop=TEST)
    pytester.makeini(f"[pytest]\nasyncio_mode = {mode}\nbide_app = shop:app\npythonpath = .\n")
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
    assert not list(pytester.path.glob("*.db*"))


@pytest.mark.parametrize(("named", "says"), [("", "set bide_app"), ("shop:SHOP", "is a str, not a bide.App")])
def test_the_fixture_says_what_is_wrong_with_the_name(pytester: pytest.Pytester, named: str, says: str) -> None:
    pytester.makepyfile(shop=f"{SHOP}\nSHOP = 'x'", test_shop=TEST)
    pytester.makeini(f"[pytest]\nbide_app = {named}\npythonpath = .\n")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    assert says in result.stdout.str()


def waiting() -> bide.App:
    app = bide.App()

    @app.workflow("w")
    async def workflow(step: bide.Step) -> None:
        await step.sleep("nap", "1h")

    return app


async def test_a_world_on_sqlite_touches_no_file_of_the_users(tmp_path: Path) -> None:
    own = tmp_path / "own.db"
    own.write_bytes(b"mine")
    for _ in range(2):
        async with world(waiting(), f"sqlite:///{own}") as there:
            assert await there.runs() == []
            await there.start("w")
    assert contents(tmp_path) == [b"mine"]


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.iterdir()]


async def test_a_world_on_postgresql_drops_its_schema(postgres_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_temporary_schema", as_users_have_it()._temporary_schema)
    async with world(waiting(), postgres_server.url()) as there:
        await there.start("w")
        [schema] = parse_qs(urlsplit(there.runtime.settings.store).query)["schema"]
        assert schema.startswith("bide_world_")
    connection = await asyncpg.connect(postgres_server.url())
    try:
        found = await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", schema)
    finally:
        await connection.close()
    assert found == 0


def as_users_have_it() -> Any:
    """The module as it is for users: these tests use schemas again, which is quicker."""
    spec = importlib.util.spec_from_file_location("places_of_users", str(places.__file__))
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
