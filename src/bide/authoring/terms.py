"""What every wait may carry beside what it waits for (W1, W9, W13): looked at before anything is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, TypedDict

from bide.authoring.checks import check_text, shown
from bide.core.durations import BadDuration, Duration, parse_duration
from bide.core.requests import Agenda
from bide.core.schema import check_schema, ignored_constraint, schema_of
from bide.errors import BadInput

SHOWN_TO_PEOPLE = ("channel", "title", "description", "assignee", "group", "metadata")


class Labels(TypedDict, total=False):
    """What people see of a wait beside its title."""

    description: str | None
    channel: str | None
    assignee: str | None
    group: str | None
    metadata: Mapping[str, Any] | None


class TitledLabels(Labels, total=False):
    title: str | None


class AskTerms(Labels, total=False):
    """The options that every wait takes."""

    reminders: Iterable[Duration]
    escalate: Mapping[Any, str]
    heartbeat: Duration | None
    notify: str | Callable[..., Any] | None
    on_timeout: str | None


AGENDA = ("reminders", "escalate", "heartbeat", "notify")
NOT_GIVEN: tuple[Any, ...] = (None, (), [], {})


class WaitTerms(AskTerms, TitledLabels, total=False):
    """Those, of a wait that is no task and need not have a title."""


def terms_of(given: Mapping[str, Any], notifiers: Mapping[str, Any]) -> dict[str, Any]:
    """The details of a wait that people see. Raises `BadInput` for what is none."""
    details: dict[str, Any] = {}
    if not given:  # as most often, and each replay asks again
        return details
    for name in SHOWN_TO_PEOPLE:
        value = given.get(name)
        if value is None:
            continue
        if name in ("channel", "assignee", "group"):
            check_text(value, name)
        elif name == "metadata":
            if not isinstance(value, Mapping):
                raise BadInput(f"metadata={shown(value)}: give a mapping")
        elif not isinstance(value, str):
            raise BadInput(f"{name}={shown(value)}: give a text")
        details[name] = value
    notify = given.get("notify")
    if notify is not None:
        name = getattr(notify, "__bide_notifier__", notify)
        if not isinstance(name, str) or name not in notifiers:
            known = ", ".join(sorted(notifiers)) or "none; register one with @app.notifier"
            raise BadInput(f"notify={shown(notify)} is no notifier of this app; there are: {known}")
        details["notify"] = name
    return details


def answer_schema(type_: Any, what: str = "returns") -> dict[str, Any] | None:
    """What answers are checked against; what is no schema is refused here, before anybody is asked."""
    try:
        schema = schema_of(type_)
        if schema is not None:
            check_schema(schema)
    except (TypeError, ValueError) as error:
        why = str(error).partition("\n")[0]
        raise BadInput(f"{what}={type_!r} is no type and no JSON Schema to check answers against: {why}") from error
    if schema is not None and schema is not type_ and (ignored := ignored_constraint(type_)) is not None:
        raise BadInput(
            f"{what}={type_!r}: {ignored!r} has no effect outside of a pydantic model; "
            "write msgspec.Meta(…), or give a model"
        )
    return schema


def agenda_of(given: Mapping[str, Any], timeout: Any) -> Agenda | None:
    """When to remind, whom to escalate to, how long silence may last; None where nothing of it is asked for.

    What would come after the end of the wait is refused: it would never come.
    """
    if not given or all(given.get(name) in NOT_GIVEN for name in AGENDA):
        return None
    reminders = given.get("reminders") or ()
    if isinstance(reminders, (str, int, float, timedelta)):
        reminders = (reminders,)
    escalate = given.get("escalate") or {}
    if not isinstance(escalate, Mapping):
        raise BadInput(f"escalate={shown(escalate)}: give a mapping of times to recipients, {{'60h': 'group:leads'}}")
    moments = tuple(sorted(_before(each, timeout, "reminders") for each in reminders))
    recipients = tuple(sorted((_before(after, timeout, "escalate"), _recipient(to)) for after, to in escalate.items()))
    heartbeat = given.get("heartbeat")
    silence = _parsed(heartbeat, "heartbeat") if heartbeat is not None else None
    if silence is not None and silence <= timedelta(0):
        raise BadInput(f"heartbeat={heartbeat!r}: give more than no time at all")
    if not moments and not recipients and silence is None and given.get("notify") is None:
        return None
    return Agenda(reminders=moments, escalate=recipients, heartbeat=silence)


def _before(after: Any, timeout: Any, what: str) -> timedelta:
    moment = _parsed(after, what)
    if isinstance(timeout, timedelta) and moment >= timeout:
        raise BadInput(f"{what}={after!r} would come after the wait has ended ({timeout}); give an earlier time")
    return moment


def _recipient(to: Any) -> str:
    check_text(to, "escalation to")
    if to.partition(":")[0] in ("group", "user") and not to.partition(":")[2]:
        raise BadInput(f"escalation to {to!r} names nobody; write group:leads or user:ann")
    return str(to)


def _parsed(value: Any, what: str) -> timedelta:
    try:
        return parse_duration(value)
    except BadDuration as error:
        raise BadInput(f"{what}={value!r}: {error}") from error
