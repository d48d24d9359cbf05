"""Whether what a wait says beside what it waits for can come true: its agenda, metadata and quorum (W9, W11)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from bide.authoring.language.source import Span, suggestion
from bide.authoring.language.tree import Entry, Expression, Field, ListOf, Literal_, MapOf, Variable, WaitFor
from bide.authoring.language.typing import Shape
from bide.core.durations import BadDuration, parse_duration
from bide.core.quorum import MOST_ANSWERS

COUNTING: Final = ("quorum", "decides", "veto")
AGENDA: Final = {
    "reminders": 'times like ["4h", "24h"]',
    "escalate": 'times and who is next, like {"60h": "group:leads"}',
}


def shown(value: object) -> str:
    """A value as the file would write it."""
    return json.dumps(value, ensure_ascii=False)


class Terms:
    """The checks of one wait: *say* notes a problem, *quiet* gives the shape of a value, *fit* compares the two."""

    def __init__(
        self,
        say: Callable[[Span, str], None],
        quiet: Callable[[Expression], Shape],
        fit: Callable[[Field, Expression, Shape], None],
    ) -> None:
        self._say, self._quiet, self._fit = say, quiet, fit

    def agenda(self, entry: Entry, shape: Shape, limit: Expression | None) -> None:
        """`reminders: ["4h", "24h"]` and `escalate: {"60h": "group:leads"}` (W9)."""
        match entry.value:
            case MapOf(entries=entries) if entry.name == "escalate":
                for each in entries:
                    self._moment(entry.name, each.name, each.span, limit)
                    self._recipient(each, self._quiet(each.value))
            case ListOf(items=items) if entry.name == "reminders":
                for item in items:
                    self._reminder(item, self._quiet(item), limit)
            case value if entry.name == "reminders" and shape.type in ("text", "number"):
                self._reminder(value, shape, limit)
            case value if shape.type not in ("any", {"escalate": "map", "reminders": "list"}[entry.name]):
                self._say(value.span, f"`«{entry.name}»` takes {AGENDA[entry.name]}, but this is «{shape.type}»")

    def _reminder(self, item: Expression, shape: Shape, limit: Expression | None) -> None:
        if isinstance(item, Literal_):
            self._moment("reminders", item.value, item.span, limit)
        elif shape.type not in ("any", "text", "number"):
            self._say(item.span, f"`«reminders»` takes {AGENDA['reminders']}, but this is «{shape.type}»")

    def _recipient(self, entry: Entry, shape: Shape) -> None:
        if shape.type not in ("any", "text"):
            said = f'`«escalate»` goes to "group:leads" or "user:ann", but this is «{shape.type}»'
            self._say(entry.value.span, said)
        elif isinstance(entry.value, Literal_) and entry.value.value in ("", "group:", "user:"):
            self._say(entry.value.span, 'this names nobody; write "group:leads" or "user:ann"')

    def _moment(self, name: str, after: object, span: Span, limit: Expression | None) -> None:
        """How long after the wait begins something comes; what would come after its end never does."""
        try:
            moment = parse_duration(after)  # type: ignore[arg-type]  # whatever it is, it is looked at
        except BadDuration:
            self._say(span, f"{shown(after)} is no length of time; `«{name}»` takes {AGENDA[name]}")
            return
        if isinstance(limit, Literal_) and limit.value != "forever":
            try:
                end = parse_duration(limit.value)  # type: ignore[arg-type]  # the same
            except BadDuration:
                return  # that is said where it stands
            if moment >= end:
                self._say(span, f"{shown(after)} is not before the end of the wait, after {shown(limit.value)}")

    def metadata(self, entry: Entry) -> None:
        for each in entry.value.entries if isinstance(entry.value, MapOf) else ():
            if each.name == "on_timeout":
                self._say(each.span, "`on_timeout` is a name of bide's own")

    def counting(self, step: WaitFor) -> None:
        """Whether the answers of several people can be counted as the wait says (W11)."""
        entries = {entry.name: entry for entry in step.told if entry.name in COUNTING}
        quorum, decides, veto = (entries.get(name) for name in COUNTING)
        if quorum is not None:
            self._quorum(quorum.value)
            if step.entry("assignee") is not None and step.entry("group") is None:
                self._say(quorum.span, f"only one person may answer `{step.name}`; give a «group», or no «assignee»")
        elif decides is not None or veto is not None:
            said = "is about the answers of several people; add `«quorum»: 2`"
            self._say((decides or veto or step).span, f"`«{'decides' if decides else 'veto'}»` {said}")
        if decides is None:
            if veto is not None and quorum is not None:
                said = 'a veto is a value of the field that is counted; name it: `«decides»: "approved"`'
                self._say(veto.span, said)
            return
        field = self._decisive(step, decides.value)
        if veto is None or field is None or self._is_plain_veto(veto.value, field):
            return
        shape = self._quiet(veto.value)
        if isinstance(veto.value, Literal_) and isinstance(veto.value.value, bool):
            said = f"`{field.name}` is «{field.type}»; name the value that is a veto"
            self._say(veto.value.span, said)
        else:
            self._fit(field, veto.value, shape)

    def _is_plain_veto(self, value: Expression, field: Field) -> bool:
        """`veto: true` counts a `false`, and `veto: false` is none."""
        return isinstance(value, Literal_) and (
            value.value is False or (value.value is True and field.type == "boolean")
        )

    def _quorum(self, value: Expression) -> None:
        """It stands in the file, since it says what the wait gives: an answer, or what several came to."""
        match value:
            case Literal_(value=int(people)) if not isinstance(people, bool) and 2 <= people <= MOST_ANSWERS:
                return
            case Literal_(value=int(people)) if people == 1 and not isinstance(people, bool):
                self._say(value.span, "one answer is enough anyway; leave `«quorum»` out")
            case _:
                said = f"`«quorum»` is how many people must answer: a whole number from 2 to {MOST_ANSWERS}"
                self._say(value.span, said)

    def _decisive(self, step: WaitFor, value: Expression) -> Field | None:
        """The field whose values are counted."""
        fields = {field.name: field for field in step.schema or ()}
        match value:
            case Literal_(value=str(name)) if name in fields:
                return fields[name]
            case Literal_(value=str(name)):
                hint = suggestion(name, fields) if fields else f"; `{step.name}` needs a «schema» that has it"
                self._say(value.span, f"`{step.name}` asks for no field `{name}`{hint}")
            case Variable(name=name) if name in fields:
                self._say(value.span, f'the name of a field stands in quotes here: "{name}"')
            case _:
                self._say(value.span, "`«decides»` is the name of the field that is counted, in quotes")
        return None
