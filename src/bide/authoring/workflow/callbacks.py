"""Callbacks: waits with a URL of their own, which is known and durable before anybody waits (F9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from bide.authoring.workflow.waits import Wait
from bide.core.expressions import BadExpression, check_expression
from bide.errors import BadInput

if TYPE_CHECKING:
    from bide.authoring.workflow.turn import WorkflowTurn

T_co = TypeVar("T_co", covariant=True)


class Callback(Wait[T_co]):
    """A wait whose answer comes to `url`. Await it when it is needed; answers that come before are held.

    >>> async def kyc(step: Step, user: str) -> str:
    ...     cb = await step.callback("kyc", timeout="7d", returns=str)
    ...     await step.run("begin", print, user, cb.url)
    ...     return await cb
    """

    def __init__(self, wait: Wait[T_co], url: str, token: str) -> None:
        super().__init__(wait.key, wait.begin)
        self.url = url
        self.token = token

    def __repr__(self) -> str:
        return f"<Callback {self.key!r}>"  # without the token: this ends up in logs


def callback(turn: WorkflowTurn, id: str, details: dict[str, Any], options: dict[str, Any]) -> Callback[Any]:
    """Reserve the wait, unless it is there, and say where its answer goes."""
    for name in ("extract", "accept"):
        if details.get(name) is not None:
            try:
                check_expression(details[name], name)
            except BadExpression as error:
                raise BadInput(f"callback {id!r}: {error}") from error
    signed, known = details.get("signed"), turn.signatures
    if signed is not None and (not isinstance(signed, str) or signed not in known):
        there = ", ".join(sorted(known)) or "none; register one with app.signature"
        raise BadInput(f"callback {id!r}: this app has no signature {signed!r}; there are: {there}")
    terms = {name: value for name, value in details.items() if value is not None} | {"callback": True}
    reservation = turn.reserve(id, names=lambda key: (turn.callback_id(key),), is_unique=True, details=terms)
    reservation.begin()
    signal_id = turn.callback_id(reservation.key)
    token = turn.signer.mint(turn.run.workspace, turn.run.id, signal_id)
    wait = turn.wait(id, "signal", names=(signal_id,), details=terms, **options)
    return Callback(wait, f"{turn.public_url.rstrip('/')}/resume/{token}", token)
