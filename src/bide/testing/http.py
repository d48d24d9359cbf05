"""HTTP into a world: the real API, in the test's own process, with a key made for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import httpx

from bide.core.access import Key, key_hash, new_key
from bide.server import Server

if TYPE_CHECKING:
    from bide.engine.runtime import Runtime

BASE_URL = "http://bide.test"


class WorldTransport(httpx.AsyncBaseTransport):
    """Lets the world know the key before the first request, and settles it after each one that may change something."""

    def __init__(self, api: Any, key: Key, runtime: Runtime, settle: Callable[[], Awaitable[None]] | None) -> None:
        self._inner = httpx.ASGITransport(api, raise_app_exceptions=True)
        self._key: Key | None = key
        self._runtime = runtime
        self._settle = settle

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        key, self._key = self._key, None
        if key is not None:
            await self._runtime.store.add_key(key)
        response = await self._inner.handle_async_request(request)
        if self._settle is not None and request.method not in ("GET", "HEAD", "OPTIONS"):
            await self._settle()
        return response


def http_client(
    runtime: Runtime, workspace: str, scopes: Sequence[str], settle: Callable[[], Awaitable[None]] | None
) -> httpx.AsyncClient:
    async def opened() -> Runtime:
        return runtime

    text = new_key(runtime.ports.random_bytes(32))
    key = Key(
        id=f"key_{runtime.ports.random_bytes(8).hex()}",
        workspace=workspace,
        hash=key_hash(text),
        name="world",
        scopes=tuple(scopes),
        created_at=runtime.ports.now(),
    )
    return httpx.AsyncClient(
        transport=WorldTransport(Server(opened), key, runtime, settle),
        base_url=BASE_URL,
        headers={"Authorization": f"Bearer {text}"},
    )
