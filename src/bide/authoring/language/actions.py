"""Python actions: functions that machine files call by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from bide.authoring.workflow import Step, Workflow
from bide.core.retrying import RetryPolicy
from bide.errors import BadInput


def calling(
    action: Callable[..., Any],
    name: str,
    arguments: Callable[[], Mapping[str, Any]],
    like: Callable[..., Any] | None = None,
) -> Callable[[], Any]:
    """A step's code that calls an action with what is made when it runs. Plain functions run in a thread.

    *like* is what the arguments must fit, where the action is a stand-in for it.
    """

    def bound() -> inspect.BoundArguments:
        given = arguments()
        try:
            inspect.signature(like or action).bind(**given)
            return inspect.signature(action).bind(**given)
        except TypeError as error:
            raise BadInput(f"action {name!r} cannot be called with ({', '.join(given)}): {error}") from None

    if inspect.iscoroutinefunction(action):

        async def call() -> Any:
            made = bound()
            return await action(*made.args, **made.kwargs)

        return call

    def call_in_thread() -> Any:
        made = bound()
        return action(*made.args, **made.kwargs)

    return call_in_thread


def runner(name: str, action: Callable[..., Any]) -> Workflow[Any, Any]:
    """The workflow that runs an action by itself: what `launch` starts."""

    async def run(step: Step, input: dict[str, Any]) -> Any:
        return await step.run("call", calling(action, name, lambda: input))

    policy = RetryPolicy()
    return Workflow(
        run,
        runner_name(name),
        version="1",
        retry=RetryPolicy(attempts=1),
        step_retry=policy,
        queue="default",
        priority=0,
    )


def runner_name(action: str) -> str:
    return f"action {action}"
