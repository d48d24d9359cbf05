"""The client: what a program outside of a run can do with runs. One module per group of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from bide.client.emitting import Emitting
from bide.client.handle import Run
from bide.client.looking import Looking
from bide.client.operating import Operating
from bide.client.rescuing import Rescuing
from bide.client.starting import Starting

if TYPE_CHECKING:
    from bide.client.remote import RemoteClient

__all__ = ["Client", "Run"]


class Client(Starting, Operating, Rescuing, Emitting, Looking):
    """Starts, signals, watches and cancels the runs of one workspace, in the app's own store.

    >>> async def order(client: Client) -> object:
    ...     run = await client.start("order", {"item": 7}, correlation_key="order:7")
    ...     await client.signal("order:7", "paid", {"amount": 100}, dedup_key="evt-1")
    ...     return await run.result(timeout="30s")

    With a URL it is the same over HTTP: `bide.Client("https://bide.example", key="bide_ws_…")` (a `RemoteClient`).
    """

    if TYPE_CHECKING:

        @overload
        def __new__(cls, url: str, key: str = "", *, timeout: float = 30.0, http: Any = None) -> RemoteClient: ...  # type: ignore[misc]  # another class, with the same methods
        @overload
        def __new__(cls, runtime: Any, workspace: str, actor: str = "client") -> Client: ...

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        if (arguments and isinstance(arguments[0], str)) or "url" in options:
            from bide.client.remote import RemoteClient  # httpx is needed only here

            return RemoteClient(*arguments, **options)
        return super().__new__(cls)
