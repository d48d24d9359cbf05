"""Options that many verbs share, written once: a verb that takes `at: Place` has all that say where it works."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer

from bide.cli.session import Target
from bide.cli.usage import AppOption, JsonOption, KeyOption, StoreOption, UrlOption, WorkspaceOption, read_duration

Verb = Callable[..., int]


class From(NamedTuple):
    """Says of a verb's parameter that its value is made from the options that *make* takes."""

    make: Callable[..., Any]


def _place(
    app: AppOption = None,
    store: StoreOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    workspace: WorkspaceOption = "default",
    json: JsonOption = False,
) -> Target:
    return Target(app, store, workspace, json, url, key)


def _store_place(
    app: AppOption = None,
    store: StoreOption = None,
    workspace: WorkspaceOption = "default",
    json: JsonOption = False,
) -> Target:
    return Target(app, store, workspace, json)


def _filters(
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="Filter: of this run.")] = None,
    definition: Annotated[str | None, typer.Option("--definition", metavar="NAME", help="Filter.")] = None,
    channel: Annotated[str | None, typer.Option("--channel", metavar="NAME", help="Filter.")] = None,
    kind: Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Filter: task, signal, sleep, …")] = None,
    of: Annotated[str | None, typer.Option("--of", metavar="NAME", help="Filter: assigned to them.")] = None,
    of_group: Annotated[str | None, typer.Option("--of-group", metavar="GROUP", help="Filter: of this group.")] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="TIME", help='Filter, such as "1d".')
    ] = None,
) -> dict[str, Any]:
    age = read_duration(older_than, "--older-than")
    given = {"run_id": run, "definition": definition, "channel": channel, "kind": kind, "older_than": age}
    found = {**given, "assignee": of, "group": of_group}
    return {name: value for name, value in found.items() if value is not None}


Place = Annotated[Target, From(_place)]
StorePlace = Annotated[Target, From(_store_place)]  # of a verb that cannot work over HTTP
Filters = Annotated[dict[str, Any], From(_filters)]


def spread(verb: Verb) -> Verb:
    """The verb as it is typed: in place of what is made from options, the options."""
    made_from = {
        name: source.make
        for name, hint in get_type_hints(verb, include_extras=True).items()
        for source in getattr(hint, "__metadata__", ())
        if isinstance(source, From)
    }
    if not made_from:
        return verb

    @wraps(verb)
    def typed(**given: Any) -> int:
        made = {
            name: make(**{option: given.pop(option) for option in inspect.signature(make).parameters})
            for name, make in made_from.items()
        }
        return verb(**given, **made)

    parameters = list(_parameters(verb, made_from))
    typed.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    typed.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return typed


def _parameters(verb: Verb, made_from: dict[str, Callable[..., Any]]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(verb, include_extras=True)
    for parameter in inspect.signature(verb).parameters.values():
        if parameter.name in made_from:
            yield from _parameters(made_from[parameter.name], {})
        else:
            yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name])
