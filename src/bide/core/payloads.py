"""JSON at the door: everything bide stores is compact UTF-8 JSON text that every store and every reader can carry.

What some parser or database would lose, change or choke on is refused here, with its path, so that nothing behind
this module has to think of it: NaN, numbers beyond 64 bits, NUL, lone surrogates, duplicate keys, bombs.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache, partial
from hashlib import sha256
from math import isfinite
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.inspect import CustomType, type_info

MAX_DEPTH: Final = 64
MAX_NODES: Final = 200_000
INT_RANGE: Final = range(-(2**63), 2**63)

_PathLink: TypeAlias = "tuple[_PathLink, str | int] | None"  # a path grows from its end; None is the root, "$"


class BadPayload(ValueError):
    """A payload that is refused: *problem* is a short code, *path* the place, the message the fact and the way out.

    Problems: too_large, too_deep, too_many_nodes, duplicate_key, not_a_number, number_range, nul, surrogate,
    not_utf8, not_json, unserialisable, mismatch. The text is safe to send to whoever sent the payload.
    """

    def __init__(self, problem: str, path: str, message: str) -> None:
        super().__init__(problem, path, message)
        self.problem, self.path, self.message = problem, path, message

    def __str__(self) -> str:
        return f"at {self.path}: {self.message}"


def encode_payload(value: object, *, max_bytes: int, around: int = 0) -> str:
    """Turn what user code handed over into JSON text of at most *max_bytes*, or raise `BadPayload`.

    Takes what msgspec takes (builtins, Structs, dataclasses, enums, datetimes, UUIDs, Decimals, …) and pydantic models.
    *around* is how many levels of it are an envelope: what is inside may be as deep as a payload may be.
    """
    try:
        raw = _encode(value)
        is_plain = _is_plain(raw, value)
        if is_plain and len(raw) <= max_bytes and _is_flat(raw):
            return raw.decode()  # the usual case
        plain = value if is_plain else msgspec.to_builtins(value, enc_hook=_to_builtin)
        raw = raw if is_plain else _encode(plain)
    except _ENCODING_ERRORS as error:
        unknown = BadPayload("unserialisable", "$", f"{_excerpt(str(error))}; return builtin types or a Struct")
        raise _problem_in(value, MAX_DEPTH + around) or unknown from error
    _refuse_size(len(raw), max_bytes)
    _refuse_shape(raw, MAX_DEPTH + around)
    if not is_plain and not _is_faithful(raw, plain, value) and (problem := _problem_in(value, MAX_DEPTH + around)):
        raise problem
    return raw.decode()


def decode_json(raw: bytes | str, *, max_bytes: int, around: int = 0) -> object:
    """Read JSON that a stranger sent. Whatever the bytes are, the answer is a plain value or `BadPayload`.

    *around* is as of `encode_payload`.
    """
    data, text = _as_utf8(raw, max_bytes)
    _refuse_shape(data, MAX_DEPTH + around)  # before parsing: parsers recurse
    try:
        value: object = _decode(data)
        if _is_all_there(data, value):
            return value
    except (ValueError, RecursionError):
        pass
    return _decode_closely(text, MAX_DEPTH + around)  # knows what is wrong, if anything, and where


def decode_as(text: str, type_: Any) -> Any:
    """Read stored JSON text as *type_*: whatever msgspec reads, or a pydantic model. `Any` gives plain values.

    A number such as 3.0 is read as 3 where an integer is asked for, as JSON Schema has it. Raises `BadPayload` with the
    problem "mismatch" when the text does not fit, and `TypeError` when no text could ever be read as *type_*.
    """
    try:
        return _read(text, type_)
    except msgspec.ValidationError as error:
        raise _mismatch(error) from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadPayload("not_json", "$", f"the stored text is not valid JSON: {error}") from error
    except RecursionError as error:
        raise _too_deep(None) from error


def _read(text: str, type_: Any) -> Any:
    read = _decode if type_ is Any else _reader(type_)
    try:
        return read(text)
    except msgspec.ValidationError as error:
        if "got `float`" not in str(error):
            raise
        return read(json.dumps(json.loads(text, parse_float=_whole)))


def _whole(digits: str) -> int | float:
    number = float(digits)
    return int(number) if number.is_integer() else number


def canonical(value: object) -> str:
    """Compact JSON with sorted keys: equal values give equal text, whatever the order of their keys.

    Numbers count as they are written: 1 and 1.0 differ. Refuses what `encode_payload` refuses, but for size.
    """
    return canonical_text(encode_payload(value, max_bytes=_NO_LIMIT))


def canonical_text(text: str) -> str:
    """The same, of text that `encode_payload` gave."""
    return _SORTED.encode(_decode(text)).decode()


def digest(text: str) -> str:
    """The SHA-256 of *text* in hex."""
    return sha256(text.encode()).hexdigest()


def _is_model(type_: Any) -> bool:
    return hasattr(type_, "model_validate_json") and hasattr(type_, "model_dump")


def _to_builtin(node: object) -> object:
    """What msgspec itself cannot take apart: pydantic models, known by their method, for pydantic is optional."""
    if _is_model(type(node)):
        return node.model_dump(mode="json")  # type: ignore[attr-defined]  # _is_model says it is there
    raise TypeError("it is no builtin type, Struct, dataclass or pydantic model")


_encode: Final = msgspec.json.Encoder(enc_hook=_to_builtin).encode
_decode: Final = msgspec.json.Decoder().decode
_SORTED: Final = msgspec.json.Encoder(order="sorted")
_NO_LIMIT: Final = 2**63
_ENCODING_ERRORS: Final = (TypeError, ValueError, AttributeError, OverflowError, RecursionError)

# Always matches from a quote on, closed or not, and never tries twice: linear on hostile text too.
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_ONE_BRACKET: Final = bytes.maketrans(b"{}", b"[]")
_ONE_DIGIT: Final = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER: Final = b"0" * 19  # 2**63 has 19 digits
_BEYOND_64_BITS: Final = re.compile(rb"9[0-9]{18}|[0-9]{20}")


def _refuse_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        way_out = "keep the data elsewhere and send a reference to it"
        raise BadPayload("too_large", "$", f"the payload has {size:,} bytes, allowed are {max_bytes:,}; {way_out}")


def _is_flat(raw: bytes) -> bool:
    """Whether it is too short to have too many values, and has too few brackets to be too deep."""
    return len(raw) < 2 * MAX_NODES and raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH


def _refuse_shape(raw: bytes, levels: int) -> None:
    """Refuse too many values and too deep nesting without parsing; malformed text may pass."""
    if _is_flat(raw):
        return
    structure = _STRING.sub(b"", raw)
    brackets = structure.translate(_ONE_BRACKET, _NOT_BRACKETS)
    if b"[" * (levels + 1) in brackets:
        raise _too_deep(None)
    if structure.count(b",") + brackets.count(b"[") >= MAX_NODES:
        message = f"the payload has more than {MAX_NODES:,} values; send it in parts, or as one string"
        raise BadPayload("too_many_nodes", "$", message)
    if _is_too_deep(brackets, levels):
        raise _too_deep(None)


def _is_too_deep(brackets: bytes, levels: int) -> bool:
    for _ in range(levels):
        inner_removed = brackets.replace(b"[]", b"")  # peels off one level everywhere
        if len(inner_removed) == len(brackets):  # nothing is left, or what is left was never closed
            break
        brackets = inner_removed
    return brackets.count(b"[") > levels or b"[]" in brackets


def _is_plain(raw: bytes, value: object) -> bool:
    """Whether *value* is made of nothing but what JSON knows, so that reading *raw* gives it back: the usual case."""
    return b"\\u0000" not in raw and not _has_huge_number(raw) and bool(_decode(raw) == value)


def _has_huge_number(raw: bytes) -> bool:
    """Whether there may be an integer beyond 64 bits in it; nanoseconds since 1970 have as many digits and are none."""
    return _LONG_NUMBER in raw.translate(_ONE_DIGIT) and _BEYOND_64_BITS.search(raw) is not None


def _is_faithful(raw: bytes, plain: object, value: object) -> bool:
    """True when *raw* says all that *value* says and no store could stumble over it. False asks for a closer look.

    The comparisons run in C and find what msgspec hides: it writes NaN and Infinity as null, and lets keys collide
    that become the same text (1 and "1"; an enum and its value).
    """
    return b"\\u0000" not in raw and not _has_huge_number(raw) and _encode(value) == raw and bool(_decode(raw) == plain)


def _is_all_there(data: bytes, value: object) -> bool:
    """True when no key of *data* was lost in *value* to a duplicate, and there is no NUL and no huge integer.

    The parser has refused the rest: NaN, floats out of range, lone surrogates.
    """
    return (
        b"\\u0000" not in data
        and not _has_huge_number(data)
        and _STRING.sub(b"", data).count(b":") == _STRING.sub(b"", _encode(value)).count(b":")
    )


def _as_utf8(raw: bytes | str, max_bytes: int) -> tuple[bytes, str]:
    _refuse_size(len(raw), max_bytes)
    try:
        data, text = (raw.encode(), raw) if isinstance(raw, str) else (raw, raw.decode())
    except UnicodeEncodeError as error:
        raise _surrogate(None) from error
    except UnicodeDecodeError as error:
        message = f"byte {error.start} is not valid UTF-8; send JSON encoded as UTF-8"
        raise BadPayload("not_utf8", "$", message) from error
    _refuse_size(len(data), max_bytes)
    if text.startswith("\ufeff"):
        raise BadPayload("not_json", "$", "the payload starts with a byte order mark; send UTF-8 without one")
    return data, text


class _Refused:
    """Stands in a parsed value where something was refused, so that the walk over the value finds its path."""

    def __init__(self, problem: str, message: str, key: str | None = None) -> None:
        self.problem, self.message, self.key = problem, message, key


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Refused:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            break
        seen.add(key)
    return _Refused("duplicate_key", _TWICE, key)


def _integer(digits: str) -> int | _Refused:
    return int(digits) if len(digits) <= 20 else _OUT_OF_RANGE  # int() would raise, or work for long, on thousands


def _float(digits: str) -> float | _Refused:
    value = float(digits)
    return value if isfinite(value) else _OUT_OF_RANGE


def _constant(name: str) -> _Refused:
    return _Refused("not_a_number", f"{name} is not JSON; send null or a string")


_TWICE: Final = "the key is there more than once; send each key once"
_OUT_OF_RANGE: Final = _Refused("number_range", "the number is out of range (64 bits); send it as a string")
_STRANGERS: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
)


def _decode_closely(text: str, levels: int) -> object:
    """Parse again, slowly: this is the judge. The quick parser only confirms what needs no judging."""
    try:
        value: object = _STRANGERS.decode(text)
    except json.JSONDecodeError as error:
        where = f"{error.msg.rstrip(': ')} in line {error.lineno}, column {error.colno}"
        raise BadPayload("not_json", "$", f"the payload is not valid JSON: {where}; send one JSON value") from error
    except RecursionError as error:  # the caller's own stack was almost used up
        raise _too_deep(None) from error
    if problem := _problem_in(value, levels):
        raise problem
    return value


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def _problem_in(root: object, levels: int) -> BadPayload | None:
    """Walk over a value, without recursion, to something in it that is refused."""
    pending: list[tuple[object, _PathLink, int]] = [(root, None, 0)]
    while pending:
        node, path, depth = pending.pop()
        problem: BadPayload | None = None
        if type(node) is str:
            problem = _problem_in_text(node, path)
        elif node is None or type(node) is bool:
            pass
        elif type(node) is int:
            problem = None if node in INT_RANGE else _refused(_OUT_OF_RANGE, path)
        elif type(node) is float:
            problem = None if isfinite(node) else _refused(_constant(str(node)), path)
        elif isinstance(node, _Refused):
            problem = _refused(node, path)
        elif (children := _children(node)) is None:
            try:
                pending.append((_simpler(node), path, depth))
            except _ENCODING_ERRORS as error:
                problem = _unserialisable(node, error, path)
        elif depth >= levels:
            problem = _too_deep(path)
        elif not (problem := _problem_in_keys(node, path) if isinstance(node, dict) else None):
            pending += [(child, (path, segment), depth + 1) for segment, child in children if not _is_harmless(child)]
        if problem:
            return problem
    return None


def _is_harmless(leaf: object) -> bool:
    """True for most leaves of most values, at a glance; saves the walk their paths."""
    if type(leaf) is int:
        return leaf in INT_RANGE
    if type(leaf) is float:
        return isfinite(leaf)
    return leaf is None or leaf is True or leaf is False or _is_harmless_text(leaf)


def _is_harmless_text(leaf: object) -> bool:
    return type(leaf) is str and leaf.isascii() and "\0" not in leaf


def _children(node: object) -> Iterable[tuple[str | int, object]] | None:
    """What a container holds; None for what is no container."""
    if isinstance(node, dict):
        return ((str(key), child) for key, child in node.items())
    if isinstance(node, (list, tuple, set, frozenset)):
        return enumerate(node)
    if isinstance(node, msgspec.Struct):
        return _set_fields(node, zip(node.__struct_fields__, node.__struct_encode_fields__, strict=True))
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return _set_fields(node, ((field.name, field.name) for field in dataclasses.fields(node)))
    return None


def _set_fields(node: object, names: Iterable[tuple[str, str]]) -> Iterable[tuple[str, object]]:
    for name, shown in names:
        child = getattr(node, name, msgspec.UNSET)
        if child is not msgspec.UNSET:
            yield shown, child


def _problem_in_text(text: str, path: _PathLink) -> BadPayload | None:
    if "\0" in text:
        return BadPayload("nul", _show(path), "the text contains NUL (\\u0000), which databases refuse; remove it")
    if not text.isascii() and _SURROGATE.search(text):
        return _surrogate(path)
    return None


def _problem_in_keys(node: dict[Any, Any], path: _PathLink) -> BadPayload | None:
    """Judge the keys of one object; those that are no strings are judged as the text they become."""
    if all(map(_is_harmless_text, node)):
        return None
    texts = set()
    for key in node:
        if type(key) is str:
            text = key
        elif isinstance(key, float) and not isfinite(key):
            return _refused(_constant(str(key)), (path, str(key)))
        else:
            try:
                [text] = _decode(_encode({key: None}))
            except (TypeError, ValueError) as error:
                return _unserialisable(key, error, path)
        if problem := _problem_in_text(text, (path, text)):
            return problem
        if text in texts:
            return BadPayload("duplicate_key", _show((path, text)), _TWICE)
        texts.add(text)
    return None


def _simpler(node: object) -> object:
    return node.value if isinstance(node, Enum) else msgspec.to_builtins(node, enc_hook=_to_builtin)


def _read_model(type_: Any, text: str | bytes) -> Any:
    try:
        return type_.model_validate_json(text)
    except ValueError as error:
        if not hasattr(error, "errors"):
            raise BadPayload("mismatch", "$", _excerpt(str(error))) from error
        first = error.errors()[0]
        path: _PathLink = None
        for segment in first["loc"]:
            path = (path, segment)
        raise BadPayload("mismatch", _show(path), _excerpt(first["msg"])) from error


def _from_plain(type_: Any, plain: Any) -> Any:
    if _is_model(type_):
        return _read_model(type_, _encode(plain))
    if isinstance(type_, type) and isinstance(plain, type_):  # `object` takes anything
        return plain
    raise ValueError(f"Expected `{getattr(type_, '__name__', type_)}`, got `{type(plain).__name__}`")


def _reader(type_: Any) -> Callable[[str], Any]:
    try:
        return _cached_reader(type_)
    except TypeError:  # not hashable, such as Annotated with a list in it; or no type at all, which raises again
        return _new_reader(type_)


def _new_reader(type_: Any) -> Callable[[str], Any]:
    if _is_model(type_):
        return partial(_read_model, type_)
    decode = msgspec.json.Decoder(type_, dec_hook=_from_plain).decode
    if isinstance(info := type_info(type_), CustomType) and not _takes_something_plain(info.cls):
        raise TypeError("it is no builtin type, Struct, dataclass or pydantic model")
    return decode


def _takes_something_plain(type_: Any) -> bool:
    """Whether a class that msgspec leaves to `_from_plain` can come of JSON: a model, or a base such as object."""
    return _is_model(type_) or (isinstance(type_, type) and any(isinstance(plain, type_) for plain in _PLAIN))


_PLAIN: Final[tuple[object, ...]] = (None, True, 1, 1.5, "", [], {})  # one of each kind of value that JSON knows
_cached_reader: Final = lru_cache(maxsize=1024)(_new_reader)  # making a decoder costs more than most decoding

_AT: Final = re.compile(r" - at (?:`key` in )?`(?P<path>[^`]*)`$")


def _mismatch(error: msgspec.ValidationError) -> BadPayload:
    text = str(error)
    at = _AT.search(text)
    path, message = (at["path"], text[: at.start()]) if at else ("$", text)
    if isinstance(inner := error.__cause__, BadPayload):  # a pydantic model inside of what msgspec reads
        path, message = path + inner.path[1:], inner.message
    return BadPayload("mismatch", path, _excerpt(message))


def _refused(found: _Refused, path: _PathLink) -> BadPayload:
    return BadPayload(found.problem, _show(path if found.key is None else (path, found.key)), found.message)


def _too_deep(path: _PathLink) -> BadPayload:
    return BadPayload("too_deep", _show(path), f"the payload is nested deeper than {MAX_DEPTH} levels; flatten it")


def _surrogate(path: _PathLink) -> BadPayload:
    message = "the text contains half a surrogate pair, which UTF-8 cannot carry; send whole characters"
    return BadPayload("surrogate", _show(path), message)


def _unserialisable(node: object, error: Exception, path: _PathLink) -> BadPayload:
    kind = type(node)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    reason = _excerpt(str(error))
    return BadPayload("unserialisable", _show(path), f"{name} cannot become JSON ({reason}); convert it first")


def _show(path: _PathLink) -> str:
    """Write a path as `$.a[0]["odd key"]`, in ASCII: keys are hostile and the text goes into replies and logs."""
    segments = []
    while path is not None:
        path, segment = path
        if isinstance(segment, int):
            segments.append(f"[{segment}]")
        elif segment.isascii() and segment.isidentifier():
            segments.append(f".{_excerpt(segment)}")
        else:
            segments.append(f"[{json.dumps(_excerpt(segment))}]")
    return "$" + "".join(reversed(segments))


def _excerpt(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}..."
