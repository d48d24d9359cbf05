"""Who is asking: the key of a request, looked up so that a revoked one fails at the very next request (G5, H1)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final, NamedTuple

from starlette.types import Scope

from bide.core.access import Key, key_hash, looks_like_key
from bide.engine.runtime import Runtime
from bide.errors import TooManyRequests, Unauthorized
from bide.server.bodies import headers_of

USED_AGAIN: Final = timedelta(minutes=1)  # how old `last_used_at` may be before it is written again
LONGEST_REST: Final = 0.005  # seconds that a look waits for a batch: reads and refusals wait with it
MOST_KNOWN: Final = 10_000
REFUSED: Final = "send a good key of a workspace as `Authorization: Bearer bide_ws_…`"


class Pass(NamedTuple):
    """A request may go on with this key. Where nobody has looked since it came, its commit does, or it is confirmed
    before it is answered."""

    key: Key
    is_confirmed: bool


class Keys:
    """Looks keys up, one look at a time for each.

    A request is answered by a look that began after it came, so a revocation counts at once, and a hundred requests
    that come together cost one look. While a batch is being committed, the next look waits for it a little: what it
    lets in could not be committed before, and those who come meanwhile share it. Otherwise a third of all statements
    are looks at half of a server's load.

    A request whose commit looks at the key itself need not wait for that, where the key was good a while ago.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._looking: dict[str, _Look] = {}
        self._known: dict[str, tuple[Key, float]] = {}  # that were good, and when: by their hash
        self._buckets: dict[str, Bucket] = {}

    async def of(self, scope: Scope, *, commits: bool) -> Pass:
        """The key of a request, which *commits* under it or does not. Raises `Unauthorized` and `TooManyRequests`."""
        sent = headers_of(scope, b"authorization")
        if len(sent) != 1:
            raise Unauthorized(REFUSED)
        scheme, _, text = sent[0].partition(" ")
        text = text.strip()
        if scheme.lower() != "bearer" or not looks_like_key(text):
            raise Unauthorized(REFUSED)
        hash = key_hash(text)
        known = self._lately(hash) if commits else None
        key = known or await self._look_up(hash)
        if key is None:
            raise Unauthorized(REFUSED)
        try:
            self._count(key)
        except TooManyRequests:
            if known is not None:
                await self.confirm(key)  # a bad key is not told how often it may ask
            raise
        return Pass(key, is_confirmed=known is None)

    async def confirm(self, key: Key) -> None:
        """Look whether it is still good. Raises `Unauthorized`."""
        if await self._look_up(key.hash) is None:
            raise Unauthorized(REFUSED)

    def _lately(self, hash: str) -> Key | None:
        """The key, where it was good not long ago. It is looked up again in time for `last_used_at`."""
        key, looked_at = self._known.get(hash, (None, 0.0))
        return key if self._runtime.ports.monotonic() - looked_at < USED_AGAIN.total_seconds() else None

    async def _look_up(self, hash: str) -> Key | None:
        look = self._looking.get(hash)
        if look is None:
            look = self._looking[hash] = _Look()
            look.task = asyncio.create_task(self._look(hash, look))
        waiter: asyncio.Future[Key | None] = asyncio.get_running_loop().create_future()
        look.waiting.append(waiter)
        return await waiter

    async def _look(self, hash: str, look: _Look) -> None:
        """Look as long as somebody waits. Whoever comes while a look is under way waits for the next one."""
        try:
            while look.waiting:
                await self._runtime.committer.batch_ended(LONGEST_REST)
                waiting, look.waiting = look.waiting, []
                try:
                    found = await self._find(hash)
                except BaseException as error:
                    _tell(waiting, error)
                    if not isinstance(error, Exception):
                        raise
                else:
                    _tell(waiting, found)
        finally:
            del self._looking[hash]
            _tell(look.waiting, asyncio.CancelledError())

    async def _find(self, hash: str) -> Key | None:
        store = self._runtime.store
        found = await store.key(hash)
        if found is None or not found[0].is_good(found[1]):
            self._known.pop(hash, None)
            return None
        key, now = found
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[hash] = key, self._runtime.ports.monotonic()
        if key.last_used_at is None or now - key.last_used_at >= USED_AGAIN:
            await store.touch_key(key.id)
        return key

    def _count(self, key: Key) -> None:
        if key.rate is None:
            return
        bucket = self._buckets.get(key.id)
        now = self._runtime.ports.monotonic()
        if bucket is None or bucket.rate != key.rate:
            bucket = self._buckets[key.id] = Bucket(key.rate, now)
        wait = bucket.take(now)
        if wait > 0:
            raise TooManyRequests(max(1, int(wait + 0.999)))


class _Look:
    """The requests with one key that wait for a look which has not begun."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[Key | None]] = []
        self.task: asyncio.Task[None] | None = None


def _tell(waiting: list[asyncio.Future[Key | None]], found: Key | BaseException | None) -> None:
    for waiter in waiting:
        if waiter.done():
            continue  # its client went away
        if isinstance(found, asyncio.CancelledError):
            waiter.cancel()
        elif isinstance(found, BaseException):
            waiter.set_exception(found)
        else:
            waiter.set_result(found)


class Bucket:
    """Lets *rate* requests through in a second, and as many at once after a quiet second."""

    def __init__(self, rate: int, now: float) -> None:
        self.rate = rate
        self._left = float(rate)
        self._at = now

    def take(self, now: float) -> float:
        """Take one; the seconds to wait where there is none."""
        self._left = min(float(self.rate), self._left + (now - self._at) * self.rate)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) / self.rate
