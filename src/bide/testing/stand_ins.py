"""Transports of a world: they note what they would send, and send nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from bide.engine.transport import Dispatched, Request, Sent, Transport


class StandIn:
    """In place of a transport."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent: list[Request] = []

    async def dispatch(self, requests: Sequence[Request]) -> Sequence[Dispatched]:
        self.sent.extend(requests)
        return [Sent() for _ in requests]


def stand_ins(registered: Mapping[str, Transport], live: Collection[str]) -> dict[str, Transport]:
    """A stand-in for each transport, but for those that are to send for real."""
    return {name: each if name in live else StandIn(name) for name, each in registered.items()}
