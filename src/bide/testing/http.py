"""HTTP into a world: the real API, in the test's own process, with a key made for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

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
        self._api = api
        self._key: Key | None = key
        self._runtime = runtime
        self._settle = settle

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        key, self._key = self._key, None
        if key is not None:
            await self._runtime.store.add_key(key)
        if request.method == "GET" and request.url.path.endswith("/v1/stream"):
            return await stream(self._api, request)
        response = await self._inner.handle_async_request(request)
        if self._settle is not None and request.method not in ("GET", "HEAD", "OPTIONS"):
            await self._settle()
        return response


async def stream(api: Any, request: httpx.Request) -> httpx.Response:
    """An answer whose body is read as it comes; httpx' own transport waits for its end, and a stream may have none."""
    begun: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    parts: asyncio.Queue[bytes | None] = asyncio.Queue(1)

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()  # nobody hangs up: the task is cancelled
        raise AssertionError("never set")

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            begun.set_result(message)
            return
        if message.get("body"):
            await parts.put(message["body"])
        if not message.get("more_body", False):
            await parts.put(None)

    url = request.url
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": request.method,
        "path": url.path,
        "raw_path": url.raw_path.partition(b"?")[0],
        "query_string": url.query,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "root_path": "",
        "scheme": url.scheme,
    }
    task = asyncio.create_task(api(scope, receive, send))
    await asyncio.wait({task, begun}, return_when=asyncio.FIRST_COMPLETED)
    if not begun.done():
        await task
    start = await begun
    return httpx.Response(start["status"], headers=start["headers"], stream=_Parts(parts, task))


class _Parts(httpx.AsyncByteStream):
    def __init__(self, parts: asyncio.Queue[bytes | None], task: asyncio.Task[None]) -> None:
        self._parts = parts
        self._task = task

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (part := await self._parts.get()) is not None:
            yield part

    async def aclose(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})


def _base(runtime: Runtime) -> str:
    """Any name will do, unless the app answers to its own alone."""
    if not runtime.settings.allowed_hosts:
        return BASE_URL
    public = urlsplit(runtime.settings.public_url)
    return f"{public.scheme}://{public.netloc}"


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
        base_url=_base(runtime),
        headers={"Authorization": f"Bearer {text}"},
    )
