"""One call of an endpoint: who asks, for what, with what; and how it is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, Any, NoReturn, TypeVar

import msgspec
from msgspec.structs import replace
from starlette.types import Receive, Scope

from bide.authoring.checks import MOST_LISTED
from bide.client import Client
from bide.core.access import Key
from bide.core.commands import AnyCommand, Emit, KeepUnused, Once, OnceKey, Reply, Unwelcome, UsedOtherwise
from bide.core.once import KEPT_FOR, is_other, once_name
from bide.core.records import RunId
from bide.engine.runtime import Runtime
from bide.errors import IdempotencyConflict, Unauthorized
from bide.server.keys import REFUSED
from bide.server.problems import FieldError, Refusal, field_error

T = TypeVar("T")

DONE_ONCE = ("POST", "PATCH")  # the methods that an idempotency key counts for (H2)


class HttpClient(Client):
    """The client of one request: what it changes is done once under the request's idempotency key (H2)."""

    def __init__(self, runtime: Runtime, key: Key, is_confirmed: bool) -> None:
        """Where it is not *is_confirmed* that the key is still good, the commits of its commands look."""

        async def opened() -> Runtime:
            return runtime

        super().__init__(opened, key.workspace, actor=f"key:{key.id}")
        self.key = key
        self.is_confirmed = is_confirmed
        self.once: OnceKey | None = None  # the request's idempotency key
        self._outlives_run = runtime.settings.retention < KEPT_FOR

    @property
    def event_id(self) -> str | None:
        """The id of an event that has none of its own: it is done once by its id."""
        return f"once:{digest_of(self.once.key.encode())}" if self.once is not None else None

    async def check_once(self) -> None:
        """Raise where the idempotency key was used with another body."""
        if self.once is not None:
            store = (await self._open()).store
            earlier = await store.name(self.workspace, "dedup", once_name(self.once))
            if is_other(self.once, earlier, await store.now()):
                self.refuse_other()

    def refuse_other(self) -> NoReturn:
        raise IdempotencyConflict(self.once.key if self.once is not None else "")

    async def _submit(self, command: AnyCommand, runtime: Runtime | None = None) -> Reply:
        reply = await super()._submit(command, runtime)
        if isinstance(reply, Unwelcome):
            raise Unauthorized(REFUSED)
        self.is_confirmed = True
        if isinstance(reply, UsedOtherwise):
            raise IdempotencyConflict(reply.key)
        return reply

    async def _foresee(self, runtime: Runtime, run_id: RunId) -> None:
        """The commit looks at the key as well, or at what was sent before."""

    def _sent(self, command: AnyCommand) -> AnyCommand:
        sent = self._sent_once(command)
        return sent if self.is_confirmed else replace(sent, key=self.key.hash)

    def _sent_once(self, command: AnyCommand) -> AnyCommand:
        if self.once is None or isinstance(command, KeepUnused):
            return command
        if isinstance(command, Emit):
            return replace(command, once=self.once)
        about = {"workspace": self.workspace, "actor": self.actor, "trace": command.trace}
        return Once(**about, once=self.once, command=command, outlives_run=self._outlives_run)


def client_of(runtime: Runtime, workspace: str, actor: str) -> Client:
    """A client for what needs no key: the token said which workspace."""

    async def opened() -> Runtime:
        return runtime

    return Client(opened, workspace, actor=actor)


@dataclass
class Call:
    """What a handler works with."""

    runtime: Runtime
    scope: Scope
    receive: Receive
    key: Key
    client: HttpClient
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any  # the JSON that was sent, checked but not converted
    body_seconds: float  # that a client has for its body, where the endpoint reads it

    def read(self, type_: type[T]) -> T:
        """The body as what the endpoint takes. Raises a `Refusal` (422) that names the field."""
        return _convert(self.body, type_, strict=True)

    def ask(self, type_: type[T]) -> T:
        """The query parameters as what the endpoint takes."""
        return _convert(dict(self.query), type_, strict=False)


def _convert(value: Any, type_: type[T], *, strict: bool) -> T:
    try:
        return msgspec.convert(value, type_, strict=strict)
    except msgspec.ValidationError as error:
        raise invalid(error) from error


def invalid(error: msgspec.ValidationError) -> Refusal:
    text = str(error)
    message, _, path = text.partition(" - at ")
    path = path.strip("`").removeprefix("key` in `") or "$"
    return Refusal(
        422, "invalid", f"the request is not what this call takes: {text}", errors=(FieldError(path, message),)
    )


Limit = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 1, "maximum": MOST_LISTED})]  # as `check_limit` says


class PageQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of a list."""

    cursor: str | None = None
    limit: Limit = 100


@dataclass(frozen=True)
class Answer:
    """What is sent back: a value that becomes JSON, with its status."""

    value: Any
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Call], Awaitable[Any]]
Check = Callable[[Call], Awaitable[None]]
Probe = Callable[[Callable[[], Awaitable[Runtime]]], Awaitable[Answer]]


async def unreached(call: Call) -> None:
    raise AssertionError("its probe answers")


async def nothing(call: Call) -> None:
    """There is no target that could be missing."""


@dataclass(frozen=True)
class Endpoint:
    """One row of the table of calls. OpenAPI is made from the same row."""

    method: str
    path: str
    handler: Handler
    scope: str | None  # that a key needs; None: any good key
    summary: str
    body: Any = None
    query: Any = None
    repeats: tuple[str, ...] = ()  # query parameters that may be sent more than once
    answers: Mapping[int, Any] = field(default_factory=dict)  # status to type; problems are added
    # Raises what stands in the way before the data counts: 404, then (after the scope) 409 or 410. Asked only where
    # the answer would be 403 or 422 otherwise, so that the order of H1 holds and the way of good calls is short.
    found: Check = nothing
    is_open: Check = nothing
    payloads: tuple[str, ...] = ()  # fields of the body that `max_payload_bytes` limits
    envelope: int = 1  # how many levels of the body are around its payloads
    max_bytes: int | None = None
    is_public: bool = False  # needs no key
    is_raw: bool = False  # reads its body itself
    takes_form: bool = False  # as a browser sends it, beside JSON; then the answer is a page
    is_probe: bool = False  # asked by those who watch over processes, under whatever address they know
    probe: Probe | None = None  # answers in place of the handler, before anything is opened
    commits: bool = False  # all that a good call does is commands of its client: their commits look at the key
    uses: tuple[str, ...] = ()  # what a good call makes more of: `runs`, `waits`, `inbox`
    media_type: str = "application/json"  # of the answers
    refusals: tuple[int, ...] = ()  # statuses of problems beyond those that every call may have

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.path.strip("/").split("/"))


def digest_of(raw: bytes) -> str:
    return sha256(raw).hexdigest()[:32]


def problems_of(said: tuple[str, ...]) -> tuple[FieldError, ...]:
    return tuple(map(field_error, said))
