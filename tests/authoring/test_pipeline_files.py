"""Pipelines written as YAML are the same definitions as those written in Python (U11)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bide
from bide.testing import world

TEXT = """
pipeline: doubled
version: 2
stages:
  - expand: builtins:range
  - kind: await
    name: ask
    cardinality: ONE_TO_ONE
    transport: interaction-api
    returns: builtins:int
    timeout: 1h
    on_item_timeout: reject
  - map: operator:neg
    name: negated
  - collect: builtins:list
"""


async def test_U11_a_file_gives_the_same_definition_as_python(tmp_path: Path, store_url: str) -> None:
    """U11."""
    path = tmp_path / "doubled.yaml"
    path.write_text(TEXT)
    app = bide.App()
    from operator import neg

    pipeline = app.load_pipeline(path)
    written = bide.Pipeline("doubled").expand(range)
    written.wait_external("ask", transport="interaction-api", returns=int, timeout="1h", on_item_timeout="reject").map(
        neg, name="negated"
    ).collect(list)
    assert pipeline.stages == written.stages
    async with world(app, store_url) as there:
        run = await there.start("doubled", 3)
        for row in await there.interactions(run_id=run.id):
            await there.answer(row.id, row.item * 10)
        assert await there.result(run.id) == [0, -10, -20]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("pipeline: doubled", "pipe: doubled"), "is no pipeline"),
        (("stages:", "steps:"), "has no entry|`stages` is a list"),
        (("- map: operator:neg", "- mop: operator:neg"), "none of expand, map"),
        (("operator:neg", "operator:nothing"), "leads nowhere"),
        (("    timeout: 1h\n", ""), "needs name, transport and timeout"),
        (("timeout: 1h", "timeout: soon"), "soon"),
        (("cardinality: ONE_TO_ONE", "cardinality: ONE_TO_TWO"), "ONE_TO_TWO"),
        (("  - expand: builtins:range\n", ""), "expand it first"),
        (("pipeline: doubled", "pipeline: [doubled"), "cannot be read as YAML"),
    ],
)
def test_a_mistake_in_a_file_is_told_and_registers_nothing(tmp_path: Path, change: Any, says: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(TEXT.replace(*change))
    app = bide.App()
    with pytest.raises(bide.BadDefinition, match=says):
        app.load_pipeline(path)
    assert not app.registry.names()
