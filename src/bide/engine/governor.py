"""The governor: asks the app's policies before a command is sent, outside of any transaction (G1)."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bide.core.approvals import APPROVAL
from bide.core.governing import Action, Allow, Deny, NeedsApproval, Rule, Verdict, by_rules
from bide.errors import BadConfiguration

log = logging.getLogger("bide.policy")

Said = Verdict | bool | None
Policy = Callable[[Action], Said | Awaitable[Said]]


class Governor:
    """The policies of one app, asked in the order in which they were added. All of them must allow an action."""

    def __init__(self) -> None:
        self._policies: list[Policy] = []

    @property
    def is_asked(self) -> bool:
        """Whether there is any policy: without one nothing is looked up for its sake."""
        return bool(self._policies)

    def add(self, policy: Policy | Rule | Sequence[Rule]) -> None:
        if isinstance(policy, Rule):
            policy = (policy,)
        if not callable(policy):
            rules = tuple(policy)
            if not rules or not all(isinstance(rule, Rule) for rule in rules):
                raise BadConfiguration(f"a policy is a function or a list of bide.Rule, not {policy!r}")
            policy = functools.partial(by_rules, rules)
        self._policies.append(policy)

    async def verdict(self, action: Action) -> Verdict:
        """What the policies say. One that breaks denies: what nobody judged does not happen.

        They are not asked about the runs that ask for their own approvals: that would never end. Who may answer those
        is said by assignee and group.
        """
        if action.definition == APPROVAL:
            return Allow()
        notes = []
        for policy in self._policies:
            said = await _ask(policy, action)
            if not isinstance(said, Allow):
                return said
            if said.note:
                notes.append(said.note)
        return Allow("; ".join(notes))


async def _ask(policy: Policy, action: Action) -> Verdict:
    try:
        answer = policy(action)
        said: Any = await answer if inspect.isawaitable(answer) else answer
    except Exception as error:
        log.exception("a policy broke while it judged %s of %s", action.kind, action.definition)
        return Deny(f"the policy broke: {type(error).__name__}")
    match said:
        case None | True:
            return Allow()
        case False:
            return Deny("the policy said no")
        case Allow() | Deny() | NeedsApproval():
            return said
        case _:
            log.error("a policy said %r, which is no verdict", said)
            return Deny("the policy gave no verdict")
