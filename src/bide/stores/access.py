"""What a store keeps for the door: workspaces, keys and secrets. Plain rows; no run is locked for them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from bide.core.access import Key, Secret, Workspace


class Access(Protocol):
    async def add_workspace(self, workspace: Workspace) -> bool:
        """Insert it; False where it is there already."""

    async def workspaces(self) -> Sequence[Workspace]:
        """All of them, by name."""

    async def add_key(self, key: Key) -> None: ...

    async def key(self, hash: str) -> tuple[Key, datetime] | None:
        """The key with that hash, revoked or not, and the time by the store's clock."""

    async def keys(self, workspace: str | None) -> Sequence[Key]:
        """The keys of a workspace, or all, by id."""

    async def touch_key(self, id: str) -> None:
        """Note that the key was used now."""

    async def revoke_key(self, id: str) -> bool:
        """Revoke a key for good, from the next look on; False where there is none, or it was revoked before."""

    async def secrets(self, candidate: Secret) -> Sequence[Secret]:
        """The secrets that are kept, newest first. Where there is none, the candidate is kept first.

        Processes that ask at the same moment with the same id get the same answer.
        """
