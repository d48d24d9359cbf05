"""A form from a JSON Schema, and the JSON that a filled-in form stands for. No script is needed for either."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from bide.core.payloads import INT_RANGE, BadPayload, decode_json, encode_payload
from bide.core.schema import problems
from bide.server.advice import advice, hint, refused
from bide.server.advice import missing as missing_advice
from bide.server.problems import FieldError

MOST_FIELDS = 100  # of one group
MOST_SENT = 1000  # that are read of a form at all
DEEPEST = 4
LONG_TEXT = 200  # from this length on a text gets several lines
_LONGEST_CHARACTER = 6  # bytes of one as JSON writes it; how much may come at all was looked at before

Kind = Literal["text", "long", "number", "boolean", "choice", "choices", "lines", "json", "group", "fixed"]

CHOSEN = ("boolean", "choice")
NUMBERS = ("integer", "number")
INPUTS = {"date": "date", "email": "email", "uri": "url"}  # browsers leave the zone out of times, which formats want


class Field(msgspec.Struct, kw_only=True):
    """One thing to fill in."""

    name: str
    path: str
    label: str
    kind: Kind
    required: bool
    is_optional: bool = False  # may be left out, if the group that it is in is not begun
    help: str = ""
    hint: str = ""  # how to write it
    input: str = "text"
    options: list[Any] = []
    fields: list[Field] = []
    value: Any = ""
    error: str = ""
    advice: str = ""  # what to do where it does not fit
    line_advice: str = ""  # the same for one of several lines
    attributes: dict[str, Any] = {}


def form_of(schema: Any, filled: Mapping[str, Sequence[str]] | None = None) -> list[Field]:
    """The fields of a schema; with *filled*, as somebody filled them in."""
    root = schema if isinstance(schema, dict) else {}
    top = _resolved(root, root)
    if _kind(top, root) == "group":
        return _fields(top, root, "data", "$", filled, 0)
    return [_field("data", "$", "Answer", top, root, True, filled, 0)]


def _fields(
    schema: Any, root: Any, name: str, path: str, filled: Mapping[str, Sequence[str]] | None, depth: int
) -> list[Field]:
    required = schema.get("required", ())
    return [
        _field(_inside(name, key), f"{path}.{key}", key, inner, root, key in required, filled, depth)
        for key, inner in _shown(schema)
    ]


def _shown(schema: Any) -> list[tuple[str, Any]]:
    """The properties that there is room for, in their order; those that must be there before those that may."""
    named, required = list(schema.get("properties", {}).items()), schema.get("required", ())
    first = {key for key, _ in sorted(named, key=lambda each: each[0] not in required)[:MOST_FIELDS]}
    return [(key, inner) for key, inner in named if key in first]


class LeftOut(msgspec.Struct, frozen=True):
    """What a form has no room for."""

    count: int
    is_needed: bool  # so that what is sent of the form is no answer


def left_out(schema: Any) -> LeftOut:
    root = schema if isinstance(schema, dict) else {}
    top = _resolved(root, root)
    found = _left_out(top, root, 0) if _kind(top, root) == "group" else LeftOut(0, is_needed=False)
    besides = 2  # what shows that the form is ours, and the box that confirms it
    is_read = _most_sent(form_of(schema)) + besides <= MOST_SENT
    return found if is_read else LeftOut(found.count, is_needed=True)


def _left_out(schema: Any, root: Any, depth: int) -> LeftOut:
    shown, required = dict(_shown(schema)), schema.get("required", ())
    missing = [key for key in schema["properties"] if key not in shown]
    count, is_needed = len(missing), any(key in required for key in missing)
    for key, inner in shown.items():
        inside = _resolved(inner, root)
        if _kind(inside, root) == "group" and depth < DEEPEST:
            found = _left_out(inside, root, depth + 1)
            count += found.count
            is_needed |= found.is_needed and key in required and not inside.get("nullable")
    return LeftOut(count, is_needed=is_needed)


def _most_sent(fields: Sequence[Field]) -> int:
    """How many fields a browser sends at most. One of boxes is sent as often as one is ticked."""
    return sum(
        _most_sent(field.fields) if field.kind == "group" else len(field.options) if field.kind == "choices" else 1
        for field in fields
    )


def _inside(name: str, key: str) -> str:
    """The name of a field, which is an id in the page too: without spaces, which part ids, and none is that of another.

    >>> _inside("data", "first_name"), _inside("data", "full name"), _inside("data", "a.b"), _inside("data.a", "b")
    ('data.first_name', 'data.full%20name', 'data.a%2Eb', 'data.a.b')
    """
    plain = re.sub(r"[^\w-]", lambda found: _escaped(found[0]), key)
    return f"{name}.{plain}"


def _escaped(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())


def _field(
    name: str,
    path: str,
    key: str,
    schema: Any,
    root: Any,
    required: bool,
    filled: Mapping[str, Sequence[str]] | None,
    depth: int,
) -> Field:
    label = _title(schema)
    schema = _resolved(schema, root)
    kind = _kind(schema, root)
    if kind == "group" and depth >= DEEPEST:
        kind = "json"
    default = schema.get("default")
    field = Field(
        name=name,
        path=path,
        label=label or key.replace("_", " ").strip().capitalize() or name,
        kind=kind,
        required=required and not schema.get("nullable"),
        help=str(schema.get("description", "")),
        hint=hint(kind, schema),
        input=INPUTS.get(str(schema.get("format")), "text"),
        advice=advice(kind, schema),
    )
    field.is_optional = not field.required
    if kind == "lines":
        items = _resolved(schema.get("items", {}), root)
        field.line_advice = advice("number" if items.get("type") in NUMBERS else "text", items)
        if field.required and _may_be_empty(schema):
            field.required, field.hint = False, f"{field.hint}, or none"
    if kind == "group":
        field.fields = _fields(schema, root, name, path, filled, depth + 1)
        if not field.required and not _is_begun(name, filled):  # it may be left out as a whole, and not in half
            _let_be_empty(field.fields, is_new=filled is None)
    elif kind in ("choice", "choices"):
        source = schema if kind == "choice" else _resolved(schema.get("items", {}), root)
        field.options = list(source.get("enum", [source["const"]] if "const" in source else []))
    elif kind == "number":
        limits = {"min": schema.get("minimum"), "max": schema.get("maximum")}
        step = 1 if schema.get("type") == "integer" else "any"
        field.attributes = {**{k: v for k, v in limits.items() if v is not None}, "step": step}
    elif kind in ("text", "long"):
        limits = {"minlength": schema.get("minLength"), "maxlength": schema.get("maxLength")}
        field.attributes = {k: v for k, v in limits.items() if isinstance(v, int)}
    given = filled.get(name) if filled is not None else None
    if kind == "choices" and filled is not None:
        field.value = list(given or ())
    elif given:
        field.value = given[0]
    elif filled is None and default is not None and not (kind in CHOSEN and field.required):
        field.value = _proposed(field, default)  # what must be chosen is not chosen beforehand (T17)
    return field


def _title(schema: Any) -> str | None:
    """What a field is called by who asks. Behind a reference there is the name of a type, which is not asked for."""
    for found in (schema, *(schema.get("anyOf") or ())) if isinstance(schema, dict) else ():
        if isinstance(found, dict) and isinstance(found.get("title"), str):
            return str(found["title"])
    return None


def _may_be_empty(schema: Mapping[str, Any]) -> bool:
    return not schema.get("minItems")


def _is_begun(name: str, filled: Mapping[str, Sequence[str]] | None) -> bool:
    return any(each.startswith(f"{name}.") and any(given) for each, given in (filled or {}).items())


def as_shown(fields: Sequence[Field]) -> dict[str, list[str]]:
    """What a browser sends of a form that nobody touched."""
    sent: dict[str, list[str]] = {}
    for field in fields:
        if field.kind == "group":
            sent.update(as_shown(field.fields))
        else:
            sent[field.name] = field.value if field.kind == "choices" and field.value else [str(field.value or "")]
    return sent


def say_what_to_choose(fields: Sequence[Field]) -> bool:
    """Whether a choice is missing; it is said beside each."""
    is_missing = False
    for field in fields:
        if field.kind in CHOSEN and field.required and field.value == "":
            field.error, is_missing = missing_advice(field.kind), True
        is_missing = say_what_to_choose(field.fields) or is_missing
    return is_missing


def say_what_cannot_be_kept(fields: Sequence[Field], filled: Mapping[str, Sequence[str]]) -> bool:
    """Whether something was sent that is refused as JSON too, however it fits the schema (H3); it is said beside it."""
    is_refused = False
    for field in fields:
        problem = _problem_in(field.kind, filled.get(field.name, ()))
        if problem is not None:
            field.error, is_refused = refused(field.kind, problem), True
        is_refused = say_what_cannot_be_kept(field.fields, filled) or is_refused
    return is_refused


def _problem_in(kind: Kind, given: Sequence[str]) -> str | None:
    """The problem that `bide.core.payloads` finds in one field, or "repeated"."""
    if len(given) > 1 and kind != "choices":
        return "repeated"  # as a key that is there twice: who reads the first of them and who the last would differ
    for text in given:
        try:
            encode_payload(text, max_bytes=len(text) * _LONGEST_CHARACTER + 2)
            if kind in ("json", "number"):
                decode_json(text, max_bytes=len(text) * _LONGEST_CHARACTER)
        except BadPayload as error:
            if error.problem != "not_json" and (kind, error.problem) != ("number", "not_a_number"):
                return error.problem
    return None


def answers_untouched(schema: Any) -> bool:
    """Whether the form would be an answer as it is shown, without anything that a person did (T17)."""
    shown = as_shown(form_of(schema))
    if say_what_to_choose(form_of(schema, shown)):
        return False
    return not problems(schema, _json(read_form(schema, shown)))


def _let_be_empty(fields: list[Field], *, is_new: bool) -> None:
    """Nothing is required and, in a form that is new, nothing is proposed: a default would begin the group."""
    for field in fields:
        field.required = False
        if is_new:
            field.value = [] if field.kind == "choices" else ""
        _let_be_empty(field.fields, is_new=is_new)


def _proposed(field: Field, default: Any) -> Any:
    """A default as the form shows it."""
    options = [_json(option) for option in field.options]
    match field.kind:
        case "boolean":
            return _json(default) if isinstance(default, bool) else ""
        case "choice":
            return _json(default) if _json(default) in options else ""
        case "choices":
            chosen = [_json(each) for each in default] if isinstance(default, list) else []
            return [option for option in options if option in chosen]
        case "text" | "long":
            return default if isinstance(default, str) else _json(default)
        case "lines":
            return "\n".join(map(str, default)) if isinstance(default, list) else ""
        case "group":
            return ""  # each of its fields has its own
        case _:
            return _json(default)


def _resolved(schema: Any, root: Any) -> dict[str, Any]:
    """The schema behind a reference, and what is left of a choice between something and null."""
    for _ in range(10):
        if not isinstance(schema, dict):
            return {}
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            found: Any = root
            for part in reference[2:].split("/"):
                found = found.get(part.replace("~1", "/").replace("~0", "~"), {}) if isinstance(found, dict) else {}
            schema = {**found, **{k: v for k, v in schema.items() if k != "$ref"}} if isinstance(found, dict) else {}
            continue
        options = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(options, list):
            real = [option for option in options if option != {"type": "null"}]
            if len(real) == 1:
                rest = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")}
                schema = {**rest, **real[0], "nullable": len(real) < len(options)}
                continue
        kinds = schema.get("type")
        if isinstance(kinds, list):
            real = [kind for kind in kinds if kind != "null"]
            if len(real) == 1:
                schema = {**schema, "type": real[0], "nullable": True}
                continue
        return schema
    return {}


def _kind(schema: dict[str, Any], root: Any) -> Kind:
    if "enum" in schema or "const" in schema:
        return "choice"
    match schema.get("type"):
        case "object" if schema.get("properties"):
            return "group"
        case "boolean":
            return "boolean"
        case "integer" | "number":
            return "number"
        case "string":
            return "long" if schema.get("maxLength", 0) > LONG_TEXT or schema.get("format") == "textarea" else "text"
        case "array":
            items = schema.get("items")
            if isinstance(items, dict) and "$ref" in items:
                items = _resolved(items, root)
            if isinstance(items, dict) and "enum" in items:
                return "choices"
            return "lines" if isinstance(items, dict) and items.get("type") in ("string", *NUMBERS) else "json"
        case _:
            return "json"


# ---------------------------------------------------------------- reading what was filled in


def read_form(schema: Any, filled: Mapping[str, Sequence[str]]) -> Any:
    """The JSON value that a filled-in form stands for. What was left empty is left out; the schema judges the rest."""
    root = schema if isinstance(schema, dict) else {}
    top = _resolved(root, root)
    if _kind(top, root) == "group":
        return _read_group(top, root, "data", filled, 0)
    value = _read(top, root, "data", True, filled, 0)
    return None if value is UNSET else value


def _read_group(schema: Any, root: Any, name: str, filled: Mapping[str, Sequence[str]], depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    required = schema.get("required", ())
    for key, inner in _shown(schema):
        resolved = _resolved(inner, root)
        is_needed = key in required and not resolved.get("nullable")
        value = _read(resolved, root, _inside(name, key), is_needed, filled, depth)
        if value is UNSET and key in required and not is_needed:
            found[key] = None
        elif value is not UNSET:
            found[key] = value
    return found


def _read(
    schema: dict[str, Any], root: Any, name: str, required: bool, filled: Mapping[str, Sequence[str]], depth: int
) -> Any:
    """What was filled in; UNSET where it is nothing, for `null` may be what was chosen."""
    kind = _kind(schema, root)
    if kind == "group" and depth < DEEPEST:
        if not required and not _is_begun(name, filled):
            return UNSET
        return _read_group(schema, root, name, filled, depth + 1) or ({} if required else UNSET)
    given = [text for text in filled.get(name, ()) if text != ""]
    if kind == "choices":
        if not given and not required and not schema.get("default"):
            return UNSET  # boxes that were ticked beforehand were emptied; others were left alone
        options = {_json(option): option for option in _resolved(schema.get("items", {}), root).get("enum", ())}
        return [options.get(text, text) for text in given]
    if kind == "lines" and not given and required and _may_be_empty(schema):
        return []
    if not given:
        return UNSET
    text = given[0].replace("\r\n", "\n")
    match kind:
        case "boolean":
            return {"true": True, "false": False}.get(text, text)
        case "number":
            return _number(text)
        case "choice":
            options = {_json(option): option for option in schema.get("enum", [schema.get("const")])}
            return options.get(text, text)
        case "lines":
            lines = [line for line in (line.strip() for line in text.split("\n")) if line]
            is_number = _resolved(schema.get("items", {}), root).get("type") in NUMBERS
            return [_number(line) for line in lines] if is_number else lines
        case "json" | "group":
            return _loose(text)
        case _:
            return text


def _number(text: str) -> Any:
    """The number that was written, also with a comma; the text where it is none that can be kept to the last digit."""
    text = text.strip()
    if re.fullmatch(r"[-+]?\d{1,19}", text):
        return int(text) if int(text) in INT_RANGE else text
    number = _loose(text.replace(",", ".") if re.fullmatch(r"-?\d+,\d+", text) else text)
    return number if isinstance(number, float) else text


def _loose(text: str) -> Any:
    """JSON where it is JSON that can be kept, and a text where it is not."""
    try:
        return decode_json(text, max_bytes=len(text) * _LONGEST_CHARACTER)
    except BadPayload:
        return text


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def with_errors(fields: list[Field], errors: Sequence[FieldError]) -> bool:
    """Say beside each field what to do about it; whether every error has found its field."""
    placed = [_place(fields, error) for error in errors]
    return all(placed)


def _place(fields: list[Field], error: FieldError) -> bool:
    missing = re.search(r'"(?P<key>[^"]+)" is a required property', error.message)
    if missing is not None:
        target = _named(fields, f"{error.path}.{missing['key']}")
        if target is not None:
            target.error = missing_advice(target.kind)
        return target is not None
    target = _around(fields, error.path)
    if target is None:
        return False
    line = re.fullmatch(r"\[(\d+)\]", error.path.removeprefix(target.path))
    if line is not None and target.line_advice:
        target.error = f"Line {int(line[1]) + 1}: {target.line_advice}"
    else:
        target.error = target.advice
    return True


def _around(fields: list[Field], path: str) -> Field | None:
    """The innermost field that a path leads to or into."""
    for field in fields:
        if path == field.path or path.startswith((f"{field.path}[", f"{field.path}.")):
            return _around(field.fields, path) or field
    return None


def _named(fields: list[Field], path: str) -> Field | None:
    for field in fields:
        found = field if field.path == path else _named(field.fields, path)
        if found is not None:
            return found
    return None
