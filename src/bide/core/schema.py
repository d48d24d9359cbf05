"""JSON Schemas that are stored with waits, and what an answer does wrong against one (W3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache, partial
from itertools import chain, islice
from typing import Any, Literal, get_args, get_origin, get_type_hints

import jsonschema_rs
import msgspec
import msgspec.inspect

_FrozenDictType = getattr(msgspec.inspect, "FrozenDictType", msgspec.inspect.DictType)  # older ones do not know it

MOST_PROBLEMS = 100
MOST_WORDS = 300  # of one problem: it may quote the data

_YEAR = "(?!0000)[0-9]{4}"
_LEAP = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
_DATE = (
    f"({_YEAR}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP}-02-29)"
)
_TIME = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]+)?"
_ZONE = "([Zz]|[+-]([01][0-9]|2[0-3]):?[0-5][0-9])"
_MOMENT = f"(?!9999-12-31[Tt ]23:59:59[.]9{{6}}[5-9]){_DATE}[Tt ]{_TIME}"  # that one would be rounded up
_ZONES = {None: f"{_ZONE}?", True: _ZONE, False: ""}  # by whether a time has one
# Whole units, the last one with a fraction; few digits, so that the sum is a timedelta.
_DURATION = (
    "[+-]?P(?!$)(([0-9]{1,8}D)?(T(?=[0-9])([0-9]{1,9}H)?([0-9]{1,9}M)?([0-9]{1,9}([.][0-9]{1,9})?S)?)?"
    "|[0-9]{1,8}[.][0-9]{1,9}D|([0-9]{1,8}D)?T([0-9]{1,9}H)?[0-9]{1,9}[.][0-9]{1,9}M"
    "|([0-9]{1,8}D)?T[0-9]{1,9}[.][0-9]{1,9}H)"
)
_DECIMAL = "[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]{1,6})?"
_BASE64 = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_INTEGER = "(0|-?[1-9][0-9]{0,17})"
_NUMBER = "-?(0|[1-9][0-9]{0,17})([.][0-9]{1,17})?([eE][+-]?[0-9]{1,2})?"
_NAMES = {  # of what texts are that match; as problems call them
    **{f"^{_MOMENT}{zone}$": "date-time" for zone in _ZONES.values()},
    **{f"^{_TIME}{zone}$": "time" for zone in _ZONES.values()},
    f"^{_DATE}$": "date",
    f"^{_DURATION}$": "duration",
    f"^{_DECIMAL}$": "decimal",
    f"^{_BASE64}$": "base64",
}
_FORMATS = {"date": f"^{_DATE}$", "date-time": f"^{_MOMENT}{_ZONE}$", "time": f"^{_TIME}{_ZONE}$"}


def schema_of(type_: Any) -> dict[str, Any] | None:
    """The JSON Schema of a type: a msgspec Struct, dataclass, TypedDict, Literal, enum, union or pydantic model.

    What fits it can be read as the type, unless a validator of the type's own refuses it. A mapping is taken as a
    schema itself; `Any` has none.
    """
    if type_ is Any or type_ is object:
        return None
    if isinstance(type_, dict):
        return type_
    return _of_class(type_) if isinstance(type_, type) else _made(type_)


@lru_cache(maxsize=512)
def _of_class(type_: type) -> dict[str, Any]:
    """Made once: a body asks for it in every turn. Nobody changes it."""
    return _made(type_)


def _made(type_: Any) -> dict[str, Any]:
    make = getattr(type_, "model_json_schema", None)
    if make is not None:
        made: dict[str, Any] = _narrowed(make())
        return made
    of_models: dict[str, Any] = {}
    schema = msgspec.json.schema(type_, schema_hook=partial(_of_model, of_models))
    if of_models:
        schema["$defs"] = {**schema.get("$defs", {}), **of_models}
    _tell(schema, msgspec.inspect.type_info(type_), schema, set())
    _order(schema, {_values(choices): list(choices) for choices in _choices(type_, set())})
    return schema


def _values(choices: Iterable[object]) -> frozenset[str]:
    return frozenset(map(repr, choices))  # 1 and "1" are two


def _order(node: Any, choices: Mapping[frozenset[str], list[object]]) -> None:
    """Let people choose in the order that the author wrote; msgspec sorts."""
    if isinstance(node, dict):
        if isinstance(node.get("enum"), list):
            node["enum"] = choices.get(_values(node["enum"]), node["enum"])
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            _order(part, choices)


def _choices(type_: Any, seen: set[Any]) -> Iterator[tuple[object, ...]]:
    """What each Literal and each enum in a type lets one choose from."""
    if get_origin(type_) is Literal:
        yield get_args(type_)
        return
    for inner in get_args(type_):
        yield from _choices(inner, seen)
    cls = get_origin(type_) or type_
    if not isinstance(cls, type) or cls in seen:
        return
    seen.add(cls)
    if issubclass(cls, Enum):
        yield tuple(member.value for member in cls)
    elif hasattr(cls, "__annotations__"):
        for inner in get_type_hints(cls, include_extras=True).values():
            yield from _choices(inner, seen)


def _of_model(of_models: dict[str, Any], type_: Any) -> dict[str, Any]:
    """The schema of a pydantic model inside of another type; what it refers to goes to the others' definitions."""
    make = getattr(type_, "model_json_schema", None)
    if make is None:
        raise NotImplementedError
    own = f"{type_.__module__}.{type_.__qualname__}".replace("<", "_").replace(">", "_")
    made: dict[str, Any] = _narrowed(make(ref_template=f"#/$defs/{own}.{{model}}"))
    of_models |= {f"{own}.{name}": inner for name, inner in made.pop("$defs", {}).items()}
    return made


def _narrowed(node: Any) -> Any:
    """A schema that pydantic made, without the moments that its formats allow and Python has not: leap seconds, the
    year 0."""
    if isinstance(node, list):
        return [_narrowed(part) for part in node]
    if not isinstance(node, dict):
        return node
    pattern = _FORMATS.get(str(node.get("format"))) if node.get("type") == "string" else None
    narrowed = {name: _narrowed(part) for name, part in node.items()}
    return narrowed if pattern is None or "pattern" in node else {**narrowed, "pattern": pattern}


def _tell(node: Any, info: Any, root: dict[str, Any], seen: set[Any]) -> None:
    """Say which texts can be read as what they stand for: msgspec says little or nothing of their form, formats of
    JSON Schema allow more or less than it reads, and what passes the check must not break the run that reads it."""
    known = msgspec.inspect
    while isinstance(info, known.Metadata):
        info = info.type
    if not isinstance(node, dict):
        return
    if isinstance(node.get("$ref"), str):
        node = root.get("$defs", {}).get(node["$ref"].removeprefix("#/$defs/"), {})
    text = _text_of(info)
    if text is not None:
        pattern, example = text
        node |= {"pattern": f"^{pattern}$", "examples": [example]}
        if isinstance(info, known.TimeDeltaType):
            node.pop("format", None)  # it knows months, and neither signs nor fractions
        return
    for part, inner in _parts(node, info, seen):
        _tell(part, inner, root, seen)


def _text_of(info: Any) -> tuple[str, str] | None:
    """A pattern of the texts that are read as this, and an example; None for what is no text, or any."""
    known = msgspec.inspect
    match info:
        case known.DateTimeType(tz=tz):
            return f"{_MOMENT}{_ZONES[tz]}", f"2030-02-01T14:30:00{'' if tz is False else 'Z'}"
        case known.TimeType(tz=tz):
            return f"{_TIME}{_ZONES[tz]}", f"14:30:00{'Z' if tz else ''}"
        case known.DateType():
            return _DATE, "2030-02-01"
        case known.TimeDeltaType():
            return _DURATION, "PT1H30M"
        case known.DecimalType():
            return _DECIMAL, "12.50"
        case known.BytesType() | known.ByteArrayType() | known.MemoryViewType():
            return _BASE64, "YmlkZQ=="
    return None


def _parts(node: dict[str, Any], info: Any, seen: set[Any]) -> Iterator[tuple[Any, Any]]:
    """The schemas inside of one, each with the type that it is of."""
    known = msgspec.inspect
    match info:
        case known.StructType() | known.DataclassType() | known.TypedDictType() | known.NamedTupleType():
            if info.cls in seen:
                return
            seen.add(info.cls)
            fields, places = node.get("properties", {}), node.get("prefixItems", ())
            tag = 1 if getattr(info, "tag_field", None) is not None else 0
            for at, field in enumerate(info.fields, start=tag):
                yield places[at] if places else fields.get(field.encode_name), field.type
        case known.TupleType():
            yield from zip(node.get("prefixItems", ()), info.item_types, strict=False)
        case known.CollectionType():
            yield node.get("items"), info.item_type
        case known.DictType() | _FrozenDictType():
            names = _names(info.key_type)
            if names is not None:
                node["propertyNames"] = names
            yield node.get("additionalProperties"), info.value_type
        case known.UnionType():
            yield from zip(_options(node), sorted(info.types, key=_place), strict=True)


def _names(info: Any) -> dict[str, Any] | None:
    """What the keys of a mapping must be like, where they are read as something else than text."""
    known = msgspec.inspect
    while isinstance(info, known.Metadata):
        info = info.type
    match info:
        case known.IntType():
            return {"pattern": f"^{_INTEGER}$"}
        case known.FloatType():
            return {"pattern": f"^{_NUMBER}$"}
        case known.DecimalType():
            raise TypeError("keys that are Decimals cannot be read back; take them as text")
        case known.UUIDType():
            return {"format": "uuid"}
        case known.EnumType():
            return {"enum": [str(member.value) for member in info.cls]}
        case known.LiteralType():
            return {"enum": [str(value) for value in info.values]}
    text = _text_of(info)
    return {"pattern": f"^{text[0]}$"} if text is not None else None


def _options(node: dict[str, Any]) -> Iterator[Any]:
    """The schemas of a union: those of tagged Structs are in one of their own."""
    for option in node["anyOf"]:
        if "discriminator" in option:
            yield from option["anyOf"]
        else:
            yield option


def _place(info: Any) -> int:
    """Where msgspec puts one of a union in its schema: after all others the Structs, then null."""
    known = msgspec.inspect
    while isinstance(info, known.Metadata):
        info = info.type
    if isinstance(info, known.NoneType):
        return 2
    return 1 if isinstance(info, known.StructType) and not info.array_like else 0


def schema_or_none(type_: Any) -> dict[str, Any] | None:
    """The same, and None for a type that JSON Schema has no words for."""
    try:
        return schema_of(type_)
    except (TypeError, RecursionError):
        return None


def ignored_constraint(type_: Any) -> object | None:
    """A constraint of pydantic's that stands outside of its models, where nobody looks at it; None if there is none."""
    return _ignored_in(type_) if isinstance(type_, type) else next(_ignored(type_, set()), None)


@lru_cache(maxsize=512)
def _ignored_in(type_: type) -> object | None:
    return next(_ignored(type_, set()), None)


def _ignored(type_: Any, seen: set[Any]) -> Iterator[object]:
    for extra in getattr(type_, "__metadata__", ()):
        made_by = type(extra).__module__.partition(".")[0]
        if made_by == "annotated_types" or (made_by == "pydantic" and getattr(extra, "metadata", True)):
            yield extra  # a `Field` that only describes has no metadata
    for inner in get_args(type_):
        yield from _ignored(inner, seen)
    cls = get_origin(type_) or type_
    if not isinstance(cls, type) or cls in seen or hasattr(cls, "model_json_schema"):
        return
    seen.add(cls)
    if hasattr(cls, "__annotations__"):
        for inner in get_type_hints(cls, include_extras=True).values():
            yield from _ignored(inner, seen)


def check_schema(schema: dict[str, Any]) -> None:
    """Raises `ValueError` where it is no JSON Schema that can be used."""
    _validator(msgspec.json.encode(schema))


def problems(schema: object, data: str) -> list[str]:
    """Every problem of the data with its path; empty where it fits."""
    return problems_with(msgspec.json.encode(schema), data) if schema is not None else []


def problems_with(schema: bytes, data: str) -> list[str]:
    """The same, of a schema as it is written."""
    validator, value = _validator(schema), msgspec.json.decode(data)
    if validator.is_valid(value):
        return []
    errors = chain.from_iterable(map(_meant, validator.iter_errors(value)))
    return list(dict.fromkeys(_said(error) for error in islice(errors, MOST_PROBLEMS)))


def _meant(error: Any) -> Iterator[Any]:
    """The problems of what may be left out are those of what it is otherwise: nobody who sends it means null."""
    options = [option for option in getattr(error.kind, "context", ()) if not _is_null(option)]
    if error.kind.name == "anyOf" and len(options) == 1:
        yield from chain.from_iterable(map(_meant, options[0]))
    else:
        yield error


def _is_null(problems: Sequence[Any]) -> bool:
    """Whether an option was refused for not being null, which it could have been."""
    return [getattr(problem.kind, "types", None) for problem in problems] == [["null"]]


def _said(error: Any) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
    message: str = error.message
    name = _NAMES.get(getattr(error.kind, "pattern", ""))
    if name is not None:
        message = f'{message.rpartition(" does not match ")[0]} is not a "{name}"'  # as of a format, which it may have
    if len(message) > MOST_WORDS:
        message = f"{message[:MOST_WORDS]}…"
    return f"at ${path}: {message}"


@lru_cache(maxsize=512)
def _validator(schema: bytes) -> Any:
    """Formats count, so that what passes can be read as the type; references stay inside the schema."""
    return jsonschema_rs.validator_for(msgspec.json.decode(schema), validate_formats=True, offline=True)
