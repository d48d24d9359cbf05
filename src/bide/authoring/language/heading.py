"""What a machine says of itself in lines `key: value`: version, queue, priority, retries, redact (F18, G4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from bide.authoring.checks import MAX_NAME, PRIORITIES, is_name
from bide.authoring.language.expressions import parse_expression
from bide.authoring.language.reading import Reader
from bide.authoring.language.source import Span
from bide.authoring.language.tree import FieldName, Literal_, Text

MOST_RETRIES: Final = range(101)


def read_heading(reader: Reader, keyword: str) -> Any:
    """The value of one line, of which *keyword* was read."""
    form = reader.form(keyword)
    reader.expect(":", f"`:` after `{form}`")
    value = READERS[keyword](reader, form)
    reader.end_line("`,` or the end of the line" if keyword == "redact" else "the end of the line")
    return value


def plain_text(reader: Reader, what: str) -> str:
    """A text that is the same in every run."""
    value = parse_expression(reader)
    match value:
        case Literal_(value=str(text)) if is_name(text):
            return text
        case Literal_(value=""):
            said = f"{what} must not be empty"
        case Literal_(value=str()):
            said = f"{what} has at most {MAX_NAME} letters, all of them printable"
        case Text():
            said = f"{what} is the same in every run, so it has no ${{…}} in it"
        case _:
            written = reader.source.text[value.span.start : value.span.end]
            said = f'{what} is a text, and texts stand in quotes: "{written}"'
    raise reader.stop(value.span, said)


def _text(reader: Reader, form: str) -> str:
    return plain_text(reader, f"`{form}`")


def _whole(allowed: range, what: str) -> Callable[[Reader, str], int]:
    def read(reader: Reader, form: str) -> int:
        value = parse_expression(reader)
        match value:
            case Literal_(value=int(number)) if not isinstance(number, bool) and number in allowed:
                return number
            case _:
                said = f"`{form}` is a whole number from {allowed[0]} to {allowed[-1]}: {what}"
                raise reader.stop(value.span, said)

    return read


def _names(reader: Reader, form: str) -> tuple[FieldName, ...]:
    """`redact: card_number, "card number"`."""
    found: list[FieldName] = []
    while True:
        span = reader.peek().span
        found.append(FieldName(_name(reader, form, span), span))
        if any(found[-1].name == before.name for before in found[:-1]):
            reader.note(span, f"`{found[-1].name}` is said twice")
        if not reader.operator(","):
            return tuple(found)


def _name(reader: Reader, form: str, span: Span) -> str:
    if not reader.at("text"):
        return reader.name(f"the name of a field to hide (`{form}: card_number, iban`)")
    name = plain_text(reader, "the name of a field")
    if "," in name:
        raise reader.stop(span, "the name of a field that is hidden has no comma; write several, with commas between")
    return name


READERS: Final[dict[str, Callable[[Reader, str], Any]]] = {
    "version": _text,
    "queue": _text,
    "priority": _whole(PRIORITIES, "of the runs of a queue, the highest goes first"),
    "retries": _whole(MOST_RETRIES, "how often a run that failed is tried again"),
    "redact": _names,
}
