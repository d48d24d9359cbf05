"""A small HTTP server that stands in for somebody else's: answers what a test says, remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: Any


@asynccontextmanager
async def web(answer: Callable[[Asked], tuple[int, Any]]) -> AsyncIterator[tuple[str, list[Asked]]]:
    """The server's URL, and the list that its requests are put on."""
    requests: list[Asked] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = await _read(reader)
            requests.append(asked)
            status, said = answer(asked)
            raw = said.encode() if isinstance(said, str) else json.dumps(said).encode()
            kind = "text/plain" if isinstance(said, str) else "application/json"
            head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(raw)}\r\n"
            writer.write(f"{head}connection: close\r\n\r\n".encode() + raw)
            await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", requests
    finally:
        server.close()
        await server.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    raw = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method, path, headers, json.loads(raw) if raw else None)
