"""Where machine files meet the kernel's waits: events, callbacks, people, and work that is started and left."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from bide.authoring.checks import shown
from bide.authoring.language.evaluating import as_text
from bide.authoring.language.evaluating import said as kind_of
from bide.authoring.language.matching import expression_of
from bide.authoring.language.tree import Field
from bide.authoring.machine import encode
from bide.authoring.terms import agenda_of, terms_of
from bide.authoring.workflow.asks import RAISES
from bide.authoring.workflow.options import timeout_given
from bide.authoring.workflow.tasks import counting
from bide.core.durations import FOREVER
from bide.core.requests import Agenda, NewTask
from bide.errors import BadInput

if TYPE_CHECKING:
    from bide.authoring.workflow import Step
    from bide.authoring.workflow.callbacks import Callback
    from bide.authoring.workflow.turn import WorkflowTurn
    from bide.authoring.workflow.waits import Wait

AGENDA = ("reminders", "escalate")
SAID = ("channel", "title", "description", "metadata", *AGENDA)  # of a wait that is no task
COUNTING = {"quorum": 1, "veto": False, "decides": None, "most_answers": None}


def timeout_of(said: Any) -> Any:
    """No time said is no limit; `bide check` says so."""
    return FOREVER if said is None or said == "forever" else said


def metadata_of(said: Any, flow: str | None) -> dict[str, Any]:
    """What the file says of a wait, and the flow that the end of its time leads to: only the file knows that one, and
    the wait tells it to who asks why the run stands there. Raises `BadInput`."""
    if said is None:
        return {"on_timeout": flow}
    if not isinstance(said, dict):
        raise BadInput(f"metadata: give an object, not {kind_of(said)}")
    if "on_timeout" in said:
        raise BadInput("metadata: `on_timeout` is a name of bide's own; choose another one")
    return {**said, "on_timeout": flow}


def _terms(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: options[name] for name in names if options.get(name) is not None}


class Question(msgspec.Struct, frozen=True):
    """A human task before it is asked: everything that can be wrong with it was looked at."""

    timeout: timedelta | datetime | None
    details: str
    agenda: Agenda | None
    quorum: int


def question(name: str, options: dict[str, Any], limit: int) -> Question:
    """The task of a wait that a person answers (L3), as `Step.ask` makes it. Raises `BadInput`."""
    title = options.get("title") or name.replace("_", " ")
    if not isinstance(title, str) or not title.strip():
        raise BadInput(f"task {name!r} has the title {shown(title)}; say in a few words what is asked")
    timeout = timeout_given(options["timeout"])
    terms = _terms(options, "channel", "description", "assignee", "group", "metadata")
    rule = COUNTING | _terms(options, "quorum", "veto", "decides")
    details = terms_of({**terms, "title": title}, notifiers={}) | _terms(options, "schema")
    details |= counting(name, rule, options["schema"], terms)
    agenda = agenda_of(_terms(options, *AGENDA), timeout)
    return Question(timeout, encode(details, limit, "the wait's schema"), agenda, rule["quorum"])


def person(turn: WorkflowTurn, name: str, question: Question) -> Wait[Any]:
    """A human task, answered under its channel (L3)."""
    return turn.wait(
        name,
        "task",
        timeout=question.timeout,
        details=question.details,
        agenda=question.agenda,
        task=NewTask(),
        notes={"quorum": question.quorum},
    )


async def callback(step: Step, name: str, options: dict[str, Any]) -> Callback[Any]:
    """A wait with an address of its own: `url` and `token` now, the answer when it is awaited (L3)."""
    terms = _terms(options, *SAID)
    returns = options["schema"] if options["schema"] is not None else Any
    return await step.callback(name, timeout=options["timeout"], returns=returns, **terms)


async def event(step: Step, name: str, options: dict[str, Any], fields: Sequence[Field] | None) -> Any:
    """The data of the first event that fits; one that does not is not for this wait, which goes on (L3)."""
    terms = _terms(options, *SAID)
    match = expression_of(options.get("match"), fields)
    said = {"schema": options["schema"], "equals": options.get("match")}
    heard = step._hear(name, as_text(options["event"]), match, options["timeout"], None, RAISES, terms, said)
    return (await heard).data


async def emit(step: Step, name: str, event: str, data: Any, channel: Any) -> None:
    await step.emit(name, event, data, **({"channel": channel} if channel is not None else {}))


async def launch(step: Step, name: str, definition: str, input: Any) -> str:
    """Start it and let it go; the run's id."""
    return await step.launch(name, definition, input)
