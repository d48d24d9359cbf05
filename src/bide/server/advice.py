"""What a person reads beside a field that was filled in wrongly: what is wanted, in words and with an example."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

NOT_FITTING: Final = "This is not what is asked for here."

FORMATS: Final = {
    "date": "a date, like 2030-02-01",
    "date-time": "a date and a time, like 2030-02-01T14:30:00Z",
    "time": "a time, like 14:30:00Z",
    "duration": "a duration, like PT1H30M",
    "email": "an e-mail address, like ann@example.com",
    "uri": "a link, like https://example.com",
    "uuid": "an id, like 123e4567-e89b-12d3-a456-426614174000",
}


PICKED: Final = ("date", "email", "uri")  # formats that a browser has a field for
WRITTEN: Final = ("date-time", "time", "duration", "uuid")  # formats that none has a fitting one for


def hint(kind: str, schema: Mapping[str, Any]) -> str:
    """How to write what no field of a browser helps with.

    >>> hint("lines", {}), hint("text", {"format": "duration"}), hint("text", {})
    ('One per line', 'A duration, like PT1H30M', '')
    >>> hint("text", {"pattern": "^[A-Z]{3}$", "examples": ["ABC"]}), hint("json", {"type": "object"})
    ('Like ABC', 'JSON')
    """
    written = str(schema.get("format"))
    match kind:
        case "lines":
            return "One per line"
        case "json":
            return "JSON" if schema.get("type") in ("object", "array") else "Text, or JSON"
        case "text" if written in WRITTEN:
            return f"{FORMATS[written][:1].upper()}{FORMATS[written][1:]}"
        case "text" if schema.get("pattern") is not None and written not in PICKED and (example := _example(schema)):
            return f"Like {example}"
        case _:
            return ""


def _example(schema: Mapping[str, Any]) -> str:
    return next((example for example in schema.get("examples") or () if isinstance(example, str)), "")


def missing(kind: str) -> str:
    """
    >>> missing("boolean"), missing("text")
    ('Please choose one.', 'Please fill this in.')
    """
    return "Please choose one." if kind in ("boolean", "choice") else "Please fill this in."


REFUSED: Final = {
    "too_deep": "This is nested too deeply. Please write it flatter.",
    "too_many_nodes": "There are too many values in it. Please give fewer.",
    "duplicate_key": "A name is in it more than once. Please give each name once.",
    "not_a_number": "There is a number in it that is none. Please put it in quotes.",
    "number_range": "A number in it is too large. Please put it in quotes.",
    "repeated": "This was sent more than once. Please answer it once.",
}


def refused(kind: str, problem: str) -> str:
    """What to do about what cannot be kept as it was written.

    >>> refused("number", "number_range"), refused("text", "nul")
    ('This number is too large.', 'There is a character in it that cannot be kept. Please take it out.')
    """
    if (kind, problem) == ("number", "number_range"):
        return "This number is too large."
    return REFUSED.get(problem, "There is a character in it that cannot be kept. Please take it out.")


def advice(kind: str, schema: Mapping[str, Any]) -> str:
    """What to do about a field that does not fit its schema.

    >>> advice("number", {"type": "integer", "minimum": 1, "maximum": 500})
    'Please give a whole number from 1 to 500.'
    >>> advice("text", {"type": "string", "pattern": "^[A-Z]{3}$", "examples": ["ABC"]})
    'Please write it like ABC.'
    >>> advice("lines", {"type": "array", "maxItems": 3})
    'Please give at most 3, one per line.'
    """
    match kind:
        case "boolean" | "choice":
            return "Please choose one of these."
        case "number":
            return f"Please give {_number(schema)}."
        case "choices":
            bounds = _bounds(schema.get("minItems"), schema.get("maxItems"))
            return f"Please choose {bounds} of these." if bounds else "Please choose from these."
        case "lines":
            bounds = _bounds(schema.get("minItems"), schema.get("maxItems"))
            different = "different ones" if schema.get("uniqueItems") else ""
            return f"Please give {' '.join(filter(None, (bounds, different))) or 'them'}, one per line."
        case "text" | "long":
            return _text(schema)
        case _:
            return NOT_FITTING


def _number(schema: Mapping[str, Any]) -> str:
    what = "a whole number" if schema.get("type") == "integer" else "a number"
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    limits = []
    if low is not None and high is not None:
        limits.append(f"from {low} to {high}")
    elif low is not None or high is not None:
        limits.append(f"of at least {low}" if low is not None else f"of at most {high}")
    limits += [f"above {above}"] if above is not None else []
    limits += [f"below {below}"] if below is not None else []
    steps = schema.get("multipleOf")
    limits += [f"in steps of {steps}"] if steps not in (None, 1) else []
    return " ".join([what, ", ".join(limits)]).strip()


def _text(schema: Mapping[str, Any]) -> str:
    wanted = FORMATS.get(str(schema.get("format")))
    if wanted is not None:
        return f"Please give {wanted}."
    bounds = _bounds(schema.get("minLength"), schema.get("maxLength"))
    lengths = f" It has {bounds} characters." if bounds else ""
    if schema.get("pattern") is not None:
        example = _example(schema)
        form = f"Please write it like {example}." if example else "It is not written in the way that is asked for."
        return form + lengths
    return f"Please write {bounds} characters." if bounds else NOT_FITTING


def _bounds(least: Any, most: Any) -> str:
    """
    >>> _bounds(3, 40), _bounds(2, None), _bounds(None, 5), _bounds(5, 5), _bounds(None, None)
    ('3 to 40', 'at least 2', 'at most 5', 'exactly 5', '')
    """
    if least and most is not None:
        return f"exactly {most}" if least == most else f"{least} to {most}"
    if least:
        return f"at least {least}"
    return f"at most {most}" if most is not None else ""
