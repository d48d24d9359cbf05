"""Expressions over the data of a message, in CEL: does this one match? (F8)

Evaluation is pure and bounded: the text is short, the parser limits its nesting, and what would go round too often is
not tried. Whatever goes wrong while an expression is evaluated means that it does not match.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import cel  # at run time only where it is used: the package loads its own command line with it

LONGEST_EXPRESSION = 4096
MOST_ROUNDS = 200_000  # of nested `all`, `exists`, `map` and `filter`
MOST_LEAVES = 200  # of an event that are looked up one by one
_LOOP = re.compile(r"\.\s*(?:all|exists|exists_one|existsOne|map|filter)\s*\(")


class BadExpression(ValueError):
    """Text that is no expression; the message says where it stops being one."""


def check_expression(text: object, what: str = "match") -> str:
    """Raises `BadExpression` for what cannot be parsed.

    >>> check_expression("data.order == 7")
    'data.order == 7'
    """
    if not isinstance(text, str) or not text.strip():
        raise BadExpression(f"{what}={text!r} is no expression; write one such as data.order == 7")
    if len(text) > LONGEST_EXPRESSION:
        raise BadExpression(f"{what} has {len(text):,} characters, allowed are {LONGEST_EXPRESSION:,}")
    return _checked(text, what)


@lru_cache(maxsize=2048)  # a replay asks again
def _checked(text: str, what: str) -> str:
    if not _is_storable(text):
        raise BadExpression(f"{what} has characters that cannot be stored, such as NUL")
    try:
        _compiled(text)
    except ValueError as error:
        raise BadExpression(f"{what}={text!r} cannot be parsed: {_first_problem(error)}") from error
    return text


def _is_storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _first_problem(error: ValueError) -> str:
    """The parser shows the whole text again; where and what is enough."""
    _, _, said = str(error).partition("ERROR: <input>:")
    return said.partition("\n")[0] or str(error).partition("\n")[0][:200]


@lru_cache(maxsize=2048)
def _compiled(text: str) -> cel.Program:
    import cel

    return cel.compile(text)


class Facts:
    """The data of one message, made ready for any number of expressions; each is evaluated once."""

    def __init__(self, data: str) -> None:
        self.value: Any = msgspec.json.decode(data)
        self._context: cel.Context | None = None
        self._longest: int | None = None
        self._known: dict[str, bool] = {"": True}

    def satisfy(self, expression: str) -> bool:
        """Whether the expression is true of the data; one that errs is not.

        >>> Facts('{"order": 7}').satisfy("data.order == 7"), Facts("{}").satisfy("data.order == 7")
        (True, False)
        """
        known = self._known.get(expression)
        if known is None:
            known = self._known[expression] = self._evaluate(expression)
        return known

    def _evaluate(self, expression: str) -> bool:
        if not self._is_affordable(expression):
            return False
        try:
            return bool(_compiled(expression).execute(self._ready()) is True)
        except Exception:
            return False

    def value_of(self, expression: str) -> Any:
        """What the expression makes of the data. Raises `BadExpression` where it makes nothing of it.

        >>> Facts('{"result": {"ok": true}}').value_of("data.result")
        {'ok': True}
        """
        if not self._is_affordable(expression):
            raise BadExpression("it would go round too often over this data")
        try:
            return _compiled(expression).execute(self._ready())
        except Exception as error:
            raise BadExpression(str(error).partition("\n")[0][:200]) from error

    def _ready(self) -> cel.Context:
        if self._context is None:
            import cel

            self._context = cel.Context({"data": self.value})
        return self._context

    def _is_affordable(self, expression: str) -> bool:
        """Loops inside loops multiply: what a sender can make long must not hold everybody up."""
        loops = len(_LOOP.findall(expression))
        if loops < 2:
            return True
        if self._longest is None:
            self._longest = _longest(self.value)
        return math.pow(max(self._longest, expression.count(",") + 1), min(loops, 10)) <= MOST_ROUNDS

    def equalities(self) -> frozenset[str] | None:
        """What of the data an indexed equality may be about; None where that is too much to be looked up."""
        found: set[str] = set()
        for path, value in _leaves(self.value):
            if len(found) == MOST_LEAVES:
                return None
            found.add(_indexed(path, value))
        return frozenset(found)


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif not isinstance(value, list):
        yield path, value


def _longest(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max((len(inner), *map(_longest, inner))) if inner else 1


# ---------------------------------------------------------------- the common case, indexed

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>"[^"\\\n]*"|'[^'\\\n]*')
      | (?P<number>\d+\.\d+|\d+)(?![\w.])
      | (?P<word>[A-Za-z_]\w*)(?!["'])
      | (?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])
    )""",
    re.VERBOSE,
)
_LITERALS = {"true": True, "false": False, "null": None}


@lru_cache(maxsize=2048)
def equality_of(expression: str) -> str:
    """The index entry of an expression that holds only where some `data.path` equals a literal; else an empty text.

    >>> equality_of("data.order == 7") == equality_of("data.ok && 7.0 == data.order") != ""
    True
    >>> equality_of("data.order == 7 || data.ok")
    ''
    """
    return next((_indexed(path, literal) for path, literal in _equalities(expression)), "")


def example_of(expression: str) -> Any:
    """Data of which the expression is true, where its equalities alone say it; else None.

    >>> example_of("data.order == 7 && data.by.name == 'ann'")
    {'order': 7, 'by': {'name': 'ann'}}
    >>> example_of("data.amount > 7") is None
    True
    """
    found: dict[str, Any] = {}
    for path, literal in _equalities(expression):
        place = found
        for key in path[:-1]:
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                return None
        if path:
            is_whole = isinstance(literal, float) and literal.is_integer()
            place[path[-1]] = int(literal) if is_whole else literal
    return found if found and Facts(msgspec.json.encode(found).decode()).satisfy(expression) else None


def _equalities(expression: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """What `data.path` must equal which literal, where the expression says so."""
    for part in _conjuncts(_tokens(expression) or []):
        for left, right in _sides(part):
            path, literal = _path(left), _literal(right)
            if path is not None and literal is not None:
                yield path, literal[0]


def _tokens(expression: str) -> list[str] | None:
    """The words of the expression; None where it has something that this reader does not know."""
    tokens, at, end = [], 0, len(expression.rstrip())
    if "//" in expression or '"""' in expression or "'''" in expression:
        return None
    while at < end:
        found = _TOKEN.match(expression, at)
        if found is None:
            return None
        tokens.append(found.group().strip())
        at = found.end()
    return tokens


def _conjuncts(tokens: list[str]) -> list[list[str]]:
    """The parts that `&&` joins on the outside; none where anything there binds looser."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
        if depth == 0 and token in ("||", "?"):
            return []
        if depth == 0 and token == "&&":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _sides(part: list[str]) -> Iterator[tuple[list[str], list[str]]]:
    if part.count("==") == 1:
        middle = part.index("==")
        left, right = part[:middle], part[middle + 1 :]
        yield left, right
        yield right, left


def _path(tokens: list[str]) -> tuple[str, ...] | None:
    """The path of `data.a.b` or `data["a"].b`."""
    if not tokens or tokens[0] != "data":
        return None
    path: list[str] = []
    rest = tokens[1:]
    while rest:
        if rest[0] == "." and len(rest) > 1 and re.fullmatch(r"[A-Za-z_]\w*", rest[1]):
            path.append(rest[1])
            rest = rest[2:]
        elif rest[0] == "[" and len(rest) > 2 and rest[2] == "]" and rest[1][0] in "\"'":
            path.append(rest[1][1:-1])
            rest = rest[3:]
        else:
            return None
    return tuple(path)


def _literal(tokens: list[str]) -> tuple[Any] | None:
    sign = tokens[:1] == ["-"]
    words = tokens[1:] if sign else tokens
    if len(words) != 1:
        return None
    [word] = words
    if word[0].isdigit():
        return (-float(word) if sign else float(word),)
    if sign:
        return None
    if word[0] in "\"'":
        return (word[1:-1],)
    return (_LITERALS[word],) if word in _LITERALS else None


def _indexed(path: tuple[str, ...], value: Any) -> str:
    """Equal values have one entry: 1 and 1.0 are equal, and so are numbers that a float cannot tell apart."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = float(value) + 0.0  # and no negative zero
        value = ["number", value if math.isfinite(value) else str(value)]
    return hashlib.blake2b(msgspec.json.encode((path, value)), digest_size=12).hexdigest()
