"""The ASGI application: one table of endpoints, and the order in which a request is judged (H1)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bide.authoring.checks import is_name
from bide.authoring.machine import encode
from bide.core.access import Key
from bide.core.commands import OnceKey
from bide.engine import tracing
from bide.engine.figures import REQUESTS
from bide.engine.runtime import Runtime
from bide.errors import BideError, Forbidden, Unavailable
from bide.server.bodies import ENVELOPE, Gone, Incoming, header, parse_json, read_body
from bide.server.calls import DONE_ONCE, Answer, Call, Endpoint, HttpClient, digest_of
from bide.server.hosts import Site, check_host
from bide.server.keys import Keys, Pass
from bide.server.problems import TYPE, Refusal, problem, refusal_of
from bide.server.quotas import Quotas, quotas_of

log = logging.getLogger("bide.server")

BODY_SECONDS = 30.0
NEVER_CACHED = (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))
_PLAIN_HEADERS = (
    *((name.lower().encode(), value.encode()) for name, value in NEVER_CACHED),
    (b"content-type", b"application/json"),
)

HTTP_1 = ("1.0", "1.1")
CLOSES = (b"connection", b"close")

ANY = "{}"  # stands for a last segment that is a parameter

_encoder = msgspec.json.Encoder(order=None)


class Api:
    """Every endpoint of the table, over the runtime of one app."""

    def __init__(
        self,
        runtime: Callable[[], Awaitable[Runtime]],
        endpoints: Iterable[Endpoint],
        *,
        body_seconds: float = BODY_SECONDS,
    ) -> None:
        self._open = runtime
        self.endpoints = tuple(endpoints)
        self._table = _Table(self.endpoints)
        self._keys: Keys | None = None
        self._keys_of: Runtime | None = None
        self._quotas: Quotas | None = None
        self._site: Site | None = None
        self._site_of: Runtime | None = None
        self._runtime: Runtime | None = None  # that requests are counted in
        self._early: Counter[str] = Counter()  # the statuses of those that came before there was one
        self._body_seconds = body_seconds

    def leave(self) -> None:
        """End what would go on for ever: the process stops."""
        if self._runtime is not None:
            self._runtime.tail.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; whatever happens, there is an answer."""
        response: Any
        incoming = Incoming(scope, receive)
        try:
            with tracing.within(_trace_of(scope)) if tracing.is_on() else nullcontext():
                response = await self._answer(scope, incoming)
        except Gone:
            return
        except Exception as error:
            refusal = refusal_of(error)
            if isinstance(error, Unavailable):  # said once a request, where many come
                log.warning("a request failed: %s", error)
            elif refusal.status >= 500:
                log.exception("a request failed", exc_info=error)
            response = refused(refusal)
        self._count(str(getattr(response, "status_code", 200)))
        if isinstance(response, Response):
            if self._site is not None:
                self._site.mark(response)
            if scope["method"] == "HEAD":
                response.body = b""
            if not incoming.is_whole and scope.get("http_version") in HTTP_1 and await incoming.is_owed():
                response.raw_headers.append(CLOSES)
        await response(scope, incoming, send)

    def _count(self, status: str) -> None:
        if self._runtime is None:
            self._early[status] += 1
            return
        self._runtime.count(REQUESTS, status)
        while self._early:
            self._runtime.count(REQUESTS, *self._early.popitem())

    async def _answer(self, scope: Scope, receive: Receive) -> Any:
        check_host(scope)
        segments = _segments(scope)
        endpoint, path = self._table.find(scope["method"], segments)
        if endpoint.probe is not None:
            return respond(await endpoint.probe(self._open))
        runtime = self._runtime = await self._open()
        if not endpoint.is_probe:
            self._site_for(runtime).check(scope)
        client = HttpClient(runtime, *await self._passed(endpoint, runtime, scope))
        try:
            if self._quotas is not None and not endpoint.is_public:
                await self._quotas.admit(client.workspace, endpoint.uses)
            call = await self._received(endpoint, scope, receive, segments, path, runtime, client)
            answer = await self._perform(endpoint, call)
        except Gone:
            raise
        except Exception:
            await self._confirm(client)  # a bad key goes before whatever else is wrong (H1)
            raise
        await self._confirm(client)
        return respond(answer)

    async def _passed(self, endpoint: Endpoint, runtime: Runtime, scope: Scope) -> Pass:
        if endpoint.is_public:
            return Pass(_ANONYMOUS, is_confirmed=True)
        # What a policy has to say of a command may be written before the commit that looks at the key.
        commits = endpoint.commits and not runtime.registry.governor.is_asked
        return await self._keys_for(runtime).of(scope, commits=commits)

    async def _confirm(self, client: HttpClient) -> None:
        """Let no answer out under a key that may have been revoked before its request came."""
        if not client.is_confirmed and self._keys is not None:
            await self._keys.confirm(client.key)

    async def _received(
        self,
        endpoint: Endpoint,
        scope: Scope,
        receive: Receive,
        segments: tuple[str, ...],
        path: Mapping[str, str],
        runtime: Runtime,
        client: HttpClient,
    ) -> Call:
        limit = endpoint.max_bytes or runtime.settings.max_payload_bytes
        raw, body = b"", None
        if endpoint.method in ("POST", "PATCH", "PUT") and not endpoint.is_raw:
            raw = await read_body(scope, receive, limit + ENVELOPE, self._body_seconds)
            body = parse_json(scope, raw, limit + ENVELOPE, endpoint.envelope)
            if len(raw) > limit and isinstance(body, dict):
                for name in endpoint.payloads:
                    encode(body.get(name), limit, f"the {name}")
        client.once = _once(scope, segments, raw)
        return Call(
            runtime=runtime,
            scope=scope,
            receive=receive,
            key=client.key,
            client=client,
            path=path,
            query=_query(scope, endpoint.repeats),
            body=body,
            body_seconds=self._body_seconds,
        )

    async def _perform(self, endpoint: Endpoint, call: Call) -> Any:
        if endpoint.scope is not None and not call.key.may(endpoint.scope):
            await endpoint.found(call)
            raise Forbidden("this call", f"the key lacks the scope {endpoint.scope}")
        try:
            return await endpoint.handler(call)
        except (BideError, Refusal) as error:
            if error.status in (403, 422):
                await endpoint.found(call)
            if error.status == 422:
                await call.client.check_once()
                await endpoint.is_open(call)
            raise

    def _site_for(self, runtime: Runtime) -> Site:
        if self._site is None or self._site_of is not runtime:
            self._site, self._site_of = Site(runtime.settings), runtime
        return self._site

    def _keys_for(self, runtime: Runtime) -> Keys:
        if self._keys is None or self._keys_of is not runtime:
            self._keys, self._keys_of = Keys(runtime), runtime
            self._quotas = quotas_of(runtime)
        return self._keys


class _Table:
    """Endpoints by the number of their segments and the last one; a fixed segment goes before a parameter."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._by_end: dict[tuple[int, str], list[tuple[tuple[str, ...], Endpoint]]] = {}
        for endpoint in endpoints:
            pattern = endpoint.segments
            end = ANY if pattern[-1].startswith("{") else pattern[-1]
            self._by_end.setdefault((len(pattern), end), []).append((pattern, endpoint))

    def _candidates(self, segments: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], Endpoint]]:
        for end in (*segments[-1:], ANY):  # `OPTIONS *` has none
            yield from self._by_end.get((len(segments), end), ())

    def find(self, method: str, segments: tuple[str, ...]) -> tuple[Endpoint, Mapping[str, str]]:
        allowed = set()
        for pattern, endpoint in self._candidates(segments):
            path = _fits(pattern, segments)
            if path is None:
                continue
            if method == endpoint.method or (method == "HEAD" and endpoint.method == "GET"):
                return endpoint, path
            allowed.add(endpoint.method)
        if allowed:
            raise Refusal(
                405,
                "method_not_allowed",
                f"this path takes {', '.join(sorted(allowed))}",
                headers=(("Allow", ", ".join(sorted(allowed))),),
            )
        raise Refusal(404, "not_found", "there is nothing here; see /docs")


def _fits(pattern: tuple[str, ...], segments: tuple[str, ...]) -> dict[str, str] | None:
    path: dict[str, str] = {}
    for wanted, given in zip(pattern, segments, strict=True):
        if wanted.startswith("{"):
            if not given:
                return None
            path[wanted[1:-1]] = given
        elif wanted != given:
            return None
    return path


def _segments(scope: Scope) -> tuple[str, ...]:
    """The path below the mount point, each segment decoded by itself: an id may contain a slash."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    root_path = scope.get("root_path", "")
    mounted = root_path.rstrip("/").count("/") if root_path else 0
    try:
        parts = raw.partition(b"?")[0].decode("ascii").split("/")[1 + mounted :]
        if parts[:1] == ["resume"] and not parts[-1]:
            parts.pop()  # a person's link, to which a program that shows mail may add a slash
        return tuple(parts) if b"%" not in raw else tuple(unquote(part, errors="strict") for part in parts)
    except UnicodeDecodeError:
        raise Refusal(404, "not_found", "there is nothing here; see /docs") from None


def _trace_of(scope: Scope) -> dict[str, str]:
    """The headers that say of which trace a request is part; what they say decides nothing."""
    names = (b"traceparent", b"tracestate")
    return {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in names}


def _query(scope: Scope, repeats: tuple[str, ...]) -> dict[str, Any]:
    if not scope.get("query_string"):
        return {}
    try:
        text = scope.get("query_string", b"").decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=50)
    except ValueError:
        raise Refusal(400, "bad_query", "the query cannot be read; send at most 50 parameters, as UTF-8") from None
    if any("\0" in value for _, value in pairs):
        raise Refusal(400, "bad_query", "a query parameter contains NUL")
    query: dict[str, Any] = {}
    for name, value in pairs:
        if name in repeats:
            query.setdefault(name, []).append(value)
        elif name in query:
            raise Refusal(400, "bad_query", "a query parameter was sent more than once")
        else:
            query[name] = value
    return query


def _once(scope: Scope, segments: tuple[str, ...], raw: bytes) -> OnceKey | None:
    """The idempotency key, what it counts for, and what was sent with it (H2)."""
    key = header(scope, b"idempotency-key") if scope["method"] in DONE_ONCE else None
    if key is None:
        return None
    if not is_name(key):
        raise Refusal(400, "bad_idempotency_key", "Idempotency-Key has 1 to 200 printable characters")
    return OnceKey(key=key, path="/".join(segments), digest=digest_of(raw))


def respond(value: Any) -> Any:
    if callable(value):
        return value  # a response of its own making: a page, a stream
    answer = value if isinstance(value, Answer) else Answer(value)
    if not answer.headers:
        return _Plain(_encoder.encode(answer.value), answer.status)
    headers = dict((*NEVER_CACHED, *answer.headers))
    return Response(_encoder.encode(answer.value), answer.status, headers, "application/json")


class _Plain(Response):
    """The answer that most calls give, JSON with the headers that all answers have: they are written once."""

    def __init__(self, body: bytes, status: int) -> None:
        self.status_code = status
        self.body = body
        self.background = None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), *_PLAIN_HEADERS]


def refused(refusal: Refusal) -> Response:
    headers = dict((*NEVER_CACHED, *refusal.headers))
    return Response(_encoder.encode(problem(refusal)), refusal.status, headers, TYPE.decode())


_ANONYMOUS = Key(id="none", workspace="none", hash="", name="", scopes=(), created_at=datetime(1970, 1, 1, tzinfo=UTC))
