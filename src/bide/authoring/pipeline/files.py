"""Pipelines written as YAML: the same stages, with functions and types named as `module:name` (U11)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bide.authoring.pipeline.definition import Pipeline
from bide.errors import BadConfiguration, BadDefinition

WORK = ("expand", "map", "filter", "collect")
AWAIT = (
    "kind", "name", "cardinality", "transport", "returns", "timeout", "on_item_timeout", "max_pending", "key",
    "replay", "channel", "assignee", "group",
)  # fmt: skip


def read(path: str | Path) -> Mapping[str, Any]:
    """The mapping that a file holds; raises `BadDefinition`."""
    try:
        import yaml  # type: ignore[import-untyped]  # it comes without types
    except ModuleNotFoundError as error:
        raise BadConfiguration("pipelines in YAML need PyYAML: pip install 'bide[pipelines]'") from error
    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadDefinition(f"{path} cannot be read as YAML: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("pipeline"), str):
        raise BadDefinition(f"{path} is no pipeline: it needs `pipeline: NAME` and `stages:`")
    if not isinstance(found.get("stages"), list) or not found["stages"]:
        raise BadDefinition(f"{path}: `stages` is a list of stages")
    return found


def build(found: Mapping[str, Any], make: Callable[..., Pipeline]) -> Pipeline:
    """The pipeline that a mapping stands for. *make* registers it, as `App.pipeline` does."""
    unknown = set(found) - {"pipeline", "stages", "version", "retries", "queue", "priority"}
    if unknown:
        raise BadDefinition(f"pipeline {found['pipeline']!r} has no entry {sorted(unknown)[0]!r}")
    options = {name: found[name] for name in ("retries", "queue", "priority") if name in found}
    built = Pipeline(found["pipeline"])  # first aside: a file with a mistake registers nothing
    _add_all(built, found["stages"])
    pipeline = make(found["pipeline"], version=str(found.get("version", "1")), **options)
    _add_all(pipeline, found["stages"])
    return pipeline


def _add_all(pipeline: Pipeline, stages: list[Any]) -> None:
    for number, stage in enumerate(stages, start=1):
        where = f"pipeline {pipeline.name!r}, stage {number}"
        if not isinstance(stage, dict):
            raise BadDefinition(f"{where} is {stage!r}; write `map: module:function`, or `kind: await` with its terms")
        if stage.get("kind") == "await":
            _add_await(pipeline, stage, where)
            continue
        if "publish" in stage or "admit" in stage:
            _add_checkpoint(pipeline, stage, where)
            continue
        kinds = [kind for kind in WORK if kind in stage]
        if len(kinds) != 1 or set(stage) - {*kinds, "name", "concurrency"}:
            kinds_known = ", ".join((*WORK, "publish", "admit"))
            raise BadDefinition(f"{where} is none of {kinds_known}, and not `kind: await`: {sorted(stage)}")
        options = {name: stage[name] for name in ("name", "concurrency") if name in stage}
        getattr(pipeline, kinds[0])(named(stage[kinds[0]], where), **options)


def _add_checkpoint(pipeline: Pipeline, stage: Mapping[str, Any], where: str) -> None:
    takes = ("publish", "key", "name") if "publish" in stage else ("admit",)
    if set(stage) - set(takes):
        raise BadDefinition(f"{where}: `{takes[0]}` takes {', '.join(takes[1:]) or 'nothing more'}: {sorted(stage)}")
    if "admit" in stage:
        pipeline.admit(stage["admit"])
        return
    key = named(stage["key"], where) if "key" in stage else None
    pipeline.publish(stage["publish"], key=key, name=stage.get("name"))


def _add_await(pipeline: Pipeline, stage: Mapping[str, Any], where: str) -> None:
    unknown = set(stage) - set(AWAIT)
    if unknown or not {"name", "transport", "timeout"} <= set(stage):
        raise BadDefinition(f"{where}: `kind: await` needs name, transport and timeout, and takes {', '.join(AWAIT)}")
    options = {name: value for name, value in stage.items() if name not in ("kind", "name")}
    for name in ("returns", "key"):
        if isinstance(options.get(name), str):
            options[name] = named(options[name], where)
    pipeline.wait_external(stage["name"], **options)


def named(text: Any, where: str) -> Any:
    """What `module:name` stands for.

    >>> named("builtins:len", "here")([1, 2])
    2
    """
    module, separator, name = str(text).partition(":")
    try:
        found: Any = importlib.import_module(module) if separator else None
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadDefinition(f"{where}: {text!r} leads nowhere; write module:name ({error})") from error
    return found
