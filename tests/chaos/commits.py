"""A proxy that cuts connections at the worst moment: while COMMIT is on its way."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from typing import Literal, cast

from tests.support.proxy import CuttingProxy, Side

COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"
Fate = Literal["lost", "unanswered", "held"]


class CommitProxy(CuttingProxy):
    """Lets everything pass, until it is told what is to become of the next commits."""

    def __init__(self, target_host: str, target_port: int) -> None:
        super().__init__(target_host, target_port)
        self._fates: list[Fate] = []
        self.has_met = asyncio.Event()
        self._let_go = asyncio.Event()

    def meet(self, *fates: Fate) -> None:
        """The connections of the next commits are cut: before COMMIT arrives ("lost"), or before its answer does
        ("unanswered"). A commit that is "held" neither arrives nor returns until `let_go`."""
        self._fates = list(fates)
        self.has_met.clear()
        self._let_go.clear()

    def let_go(self) -> None:
        self._let_go.set()

    async def _pump(self, reader: StreamReader, writer: StreamWriter, side: Side) -> None:
        watched = cast(StreamReader, _UntilCommit(reader, self)) if side == "client" else reader
        await super()._pump(watched, writer, side)

    async def passed(self, data: bytes) -> bytes | None:
        """What of these bytes goes on before the connection ends; None where all is well."""
        at = data.find(COMMIT)
        if at < 0 or not self._fates:
            return None
        fate = self._fates.pop(0)
        if not self._fates:
            self.has_met.set()
        if fate == "held":
            await self._let_go.wait()
        return data if fate == "unanswered" else data[:at]


class _UntilCommit:
    """A reader that ends with the commit whose turn it is."""

    def __init__(self, reader: StreamReader, proxy: CommitProxy) -> None:
        self._reader = reader
        self._proxy = proxy
        self._has_ended = False

    async def read(self, size: int) -> bytes:
        if self._has_ended:
            return b""
        data = await self._reader.read(size)
        passed = await self._proxy.passed(data)
        if passed is None:
            return data
        self._has_ended = True
        return passed
