"""Every error that bide raises, grouped by what the caller can do about it.

BideError                        catch this to catch us
├─ NotFound                      it is not there (HTTP 404)
│  ├─ NoTarget                   no live run answers to that id or correlation key
│  │  ├─ SignalNotFound          no open wait holds that signal id
│  │  └─ WaitNotFound            no wait or interaction has that id, or it was cancelled
│  ├─ RunNotFound
│  ├─ UnusedNotFound             no kept arrival has that id
│  ├─ DeadLetterNotFound         no dead letter has that id
│  ├─ KeyNotFound                no key has that id
│  ├─ WorkspaceNotFound
│  └─ DefinitionNotFound
├─ Conflict                      it clashes with what is there (HTTP 409)
│  ├─ DuplicateRun               a run holds the correlation key
│  ├─ DedupConflict              the dedup key was used with another payload
│  ├─ RunIsFinal                 the run has ended
│  ├─ AlreadyAnswered            the wait was answered or failed, or its time is up (HTTP 410)
│  ├─ ConflictingAnswer          another answer was given before, or another thing was shown
│  ├─ TaskTaken                  somebody else has claimed the task
│  ├─ ReceiptMismatch            a step requires another decision receipt
│  ├─ IdempotencyConflict        the idempotency key was used with another body
│  ├─ WorkspaceExists
│  └─ NotHeld                    only held or failed runs can be retried
├─ Invalid                       the call is wrong (HTTP 422)
│  ├─ BadInput                   input, payload, name or duration that cannot be taken
│  │  ├─ InvalidAnswer           an answer that does not fit; `problems` has every problem with its path
│  │  └─ BadCursor               a cursor that no page gave out (HTTP 400)
│  ├─ PayloadTooLarge            (HTTP 413)
│  ├─ BadDefinition              found when a definition is registered
│  │  └─ LanguageError           a machine file with mistakes
│  ├─ BadExpression              a machine file computed what cannot be
│  ├─ BadConfiguration           a setting or store URL that cannot be used
│  ├─ TooManyItems               more items than a stored unit may have
│  ├─ BadArchive                 a file that is not the record of a run that it says it is
│  └─ ForeignConnectionError     a connection that bide cannot join
├─ PolicyDenied                  a policy said no (HTTP 403)
│  └─ ApprovalNeeded             a policy wants a person's approval first
├─ Forbidden                     not for who they are, or the key may not (HTTP 403)
├─ Unauthorized                  no key, or one that is not good (HTTP 401)
│  └─ BadSignature               nothing proves who sent a webhook
├─ TooManyRequests               the rate of a key or link is used up (HTTP 429)
│  ├─ InboxFull                  as many signals wait in a run's inbox as may
│  └─ QuotaExceeded              the workspace has as much as it may
├─ TransactionOpen               write after the open transaction, or inside it
├─ RunEnded                      raised by `result`
│  ├─ RunFailedError
│  ├─ RunStoppedError
│  └─ RunCancelledError
├─ StepFailedError               a step failed and is not tried again; raised in workflows
├─ WaitFailedError               the outside failed the wait; raised in workflows
│  ├─ WaitCancelledError         the outside cancelled the wait; raised in workflows
│  ├─ AnswerRefusedError         the answer fits the schema, and its type refuses it; raised in workflows
│  └─ ItemsRejectedError         the outside declined some items of a request; raised in workflows
├─ SignalCollisionError          another run awaits that signal id (HTTP 409)
├─ NotInAStep                    a workflow's body did what belongs into a step
├─ HistoryMismatch               the code no longer fits what the run has stored
├─ WaitTimeoutError              also a TimeoutError
│  ├─ SignalTimeoutError         nobody answered the signal id in time
│  └─ RunTimeoutError            `result(timeout=)` ran out; the run goes on
├─ Unavailable                   try again (HTTP 503)
│  └─ StoreUnavailable
└─ Broken                        a person must look (HTTP 500)
   ├─ SchemaTooNew
   ├─ SchemaMissing
   ├─ PayloadUnreadable           encrypted under a key that is not given, or changed
   └─ StoreCorrupt
Cancelled (BaseException)        raised once in a workflow that cleans up when it is cancelled
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from bide.core.records import RunError


class BideError(Exception):
    """The root of every error of bide. `code` is stable; `status` is the HTTP status it is answered with.

    >>> RunNotFound("run_7").code, RunNotFound("run_7").status
    ('run_not_found', 404)
    """

    code: ClassVar[str] = "bide_error"
    status: ClassVar[int] = 500


def fact_names(kind: type[BideError]) -> tuple[str, ...]:
    """What an error of that class is made of, by name; nothing where it is made of a text.

    >>> fact_names(DuplicateRun), fact_names(BadInput)
    (('correlation_key', 'holder'), ())
    """
    if kind.__init__ is Exception.__init__:
        return ()
    _, *parameters = inspect.signature(kind.__init__).parameters.values()
    return tuple(each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD)


class NotFound(BideError):
    code = "not_found"
    status = 404


class NoTarget(NotFound):
    """Nobody would ever read the signal: there is no such run, or it has ended.

    >>> print(NoTarget("run_7", "completed"))
    run run_7 is completed and takes no more signals; start a new run
    """

    code = "no_target"

    def __init__(self, target: str, run_status: str | None = None) -> None:
        super().__init__(target, run_status)
        self.target, self.run_status = target, run_status

    def __str__(self) -> str:
        if self.run_status in (None, "not_found"):
            return f"no live run answers to {self.target!r}; start one first, or check the id or correlation key"
        return f"run {self.target} is {self.run_status} and takes no more signals; start a new run"


class SignalNotFound(NoTarget):
    """No open wait of this workspace holds that signal id.

    >>> SignalNotFound("approval-1").code
    'no_target'
    """

    def __str__(self) -> str:
        return f"nobody waits for {self.target!r}; check the signal id, or look with `bide waits`"


class WaitNotFound(NoTarget):
    """There is no such wait or interaction in this workspace, or it was cancelled.

    >>> WaitNotFound("int_7_1_0").code
    'no_target'
    """

    def __str__(self) -> str:
        if self.run_status == "cancelled":
            return f"{self.target!r} was cancelled: nobody waits for it any more"
        return f"there is no {self.target!r} in this workspace; list what is open with `bide waits`"


class DeadLetterNotFound(NotFound):
    """No dead letter has that id: it was never there, or somebody retried or discarded it.

    >>> DeadLetterNotFound("notify:wait_7_1:opened:0").code
    'dead_letter_not_found'
    """

    code = "dead_letter_not_found"

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.id = id

    def __str__(self) -> str:
        return f"there is no dead letter {self.id!r}; list them with `bide dead-letters`"


class RunNotFound(NotFound):
    """There is no such run in this workspace.

    >>> print(RunNotFound("run_7"))
    there is no run 'run_7' in this workspace; list runs with `bide runs`
    >>> print(RunNotFound("order:7"))
    no run has the correlation key 'order:7' now; a run gives its key up when it ends: list runs with `bide runs`
    """

    code = "run_not_found"

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.run_id = run_id

    def __str__(self) -> str:
        if not isinstance(self.run_id, str) or not self.run_id or self.run_id.startswith("run_"):
            return f"there is no run {self.run_id!r} in this workspace; list runs with `bide runs`"
        return (
            f"no run has the correlation key {self.run_id!r} now; "
            "a run gives its key up when it ends: list runs with `bide runs`"
        )


class UnusedNotFound(NotFound):
    """Nothing is kept under that id: it was never there, was used since, or its retention is over.

    >>> UnusedNotFound("msg_7").code
    'unused_not_found'
    """

    code = "unused_not_found"

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.id = id

    def __str__(self) -> str:
        return f"no unused arrival has the id {self.id!r}; it may have been re-addressed, or its retention has passed"


class KeyNotFound(NotFound):
    """No key has that id, or it was revoked before.

    >>> print(KeyNotFound("key_7"))
    there is no key 'key_7' that could be revoked; list keys with `bide keys list`
    """

    code = "key_not_found"

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.id = id

    def __str__(self) -> str:
        return f"there is no key {self.id!r} that could be revoked; list keys with `bide keys list`"


class WorkspaceNotFound(NotFound):
    """There is no such workspace.

    >>> print(WorkspaceNotFound("shop"))
    there is no workspace 'shop'; create it with `bide workspaces create shop`
    """

    code = "workspace_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"there is no workspace {self.name!r}; create it with `bide workspaces create {self.name}`"


class DefinitionNotFound(NotFound):
    """The app has no definition of that name or version.

    >>> print(DefinitionNotFound("ordr", ("order", "refund")))
    no definition is called 'ordr' in this app; registered are: order, refund
    >>> print(DefinitionNotFound("order@3", ("order", "refund"), ("1", "2")))
    'order' is registered in this app, but no version '3' of it; there are: 1, 2
    """

    code = "definition_not_found"

    def __init__(self, name: str, known: tuple[str, ...] = (), versions: tuple[str, ...] = ()) -> None:
        super().__init__(name, known, versions)
        self.name, self.known, self.versions = name, known, versions

    def __str__(self) -> str:
        name, _, version = self.name.rpartition("@")
        if name in self.known:
            there = f"; there are: {', '.join(self.versions)}" if self.versions else ""
            return f"{name!r} is registered in this app, but no version {version!r} of it{there}"
        known = ", ".join(self.known) or "none"
        return f"no definition is called {self.name!r} in this app; registered are: {known}"


class Conflict(BideError):
    code = "conflict"
    status = 409


class DuplicateRun(Conflict):
    """A second start under a correlation key that a run holds.

    >>> DuplicateRun("order:7", "run_7").holder
    'run_7'
    """

    code = "duplicate_run"

    def __init__(self, correlation_key: str, holder: str) -> None:
        super().__init__(correlation_key, holder)
        self.correlation_key, self.holder = correlation_key, holder

    def __str__(self) -> str:
        return (
            f"correlation key {self.correlation_key!r} is held by {self.holder}; "
            'signal that run, wait for its end, or start with if_exists="return"'
        )


class DedupConflict(Conflict):
    """A dedup key came again with another payload: one of the two is a mistake, and the first one stands.

    >>> DedupConflict("evt-7", "msg_1").message_id
    'msg_1'
    """

    code = "dedup_conflict"

    def __init__(self, dedup_key: str, message_id: str | None = None) -> None:
        super().__init__(dedup_key, message_id)
        self.dedup_key, self.message_id = dedup_key, message_id

    def __str__(self) -> str:
        if self.message_id is None:
            return f"event id {self.dedup_key!r} came with another name or data before, and the first one stands"
        return (
            f"dedup key {self.dedup_key!r} was used with another payload (message {self.message_id}); "
            "the first one stands: send a new key for a new message"
        )


class RunIsFinal(Conflict):
    """The run has ended otherwise than was asked for.

    >>> print(RunIsFinal("run_7", "completed"))
    run run_7 is completed already; nothing was changed
    """

    code = "run_is_final"

    def __init__(self, run_id: str, run_status: str) -> None:
        super().__init__(run_id, run_status)
        self.run_id, self.run_status = run_id, run_status

    def __str__(self) -> str:
        return f"run {self.run_id} is {self.run_status} already; nothing was changed"


class AlreadyAnswered(Conflict):
    """The wait has ended: with its answer, by its time, or because somebody failed or cancelled it.

    >>> AlreadyAnswered("approval-1", "timed_out").status
    410
    >>> print(AlreadyAnswered("wait_7_1", "failed"))
    it is too late for 'wait_7_1': it was failed before
    """

    code = "already_answered"
    status = 410

    def __init__(self, signal_id: str, reason: str) -> None:
        super().__init__(signal_id, reason)
        self.signal_id, self.reason = signal_id, reason

    def __str__(self) -> str:
        said = {
            "timed_out": "its time was up",
            "failed": "it was failed before",
            "cancelled": "it was cancelled before",
            "completed": "it was answered before",
        }.get(self.reason, "it was answered or failed before")  # W7 has one reason for both
        return f"it is too late for {self.signal_id!r}: {said}"


class ConflictingAnswer(Conflict):
    """Another answer was given before, or the answer is to something else than what is shown.

    >>> print(ConflictingAnswer("int_7_1_0", "already_completed"))
    'int_7_1_0' has another answer already, and the first one stands
    """

    code = "conflicting_answer"

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(target, reason)
        self.target, self.reason = target, reason

    def __str__(self) -> str:
        if self.reason == "shown":
            return f"the answer is to something else than what {self.target!r} shows; look at it again"
        return f"{self.target!r} has another answer already, and the first one stands"


class TaskTaken(Conflict):
    """The task cannot be claimed or released: somebody else has it, or it is for several people.

    >>> print(TaskTaken("int_7_1_0", "ann has claimed it"))
    int_7_1_0 cannot be had: ann has claimed it
    """

    code = "task_taken"

    def __init__(self, id: str, reason: str) -> None:
        super().__init__(id, reason)
        self.id, self.reason = id, reason

    def __str__(self) -> str:
        return f"{self.id} cannot be had: {self.reason}"


class ReceiptMismatch(Conflict):
    """A step with `requires=` was given another decision receipt than it may act on. Never retried.

    >>> print(ReceiptMismatch("send", "nobody answered"))
    step 'send' must not run: nobody answered
    """

    code = "receipt_mismatch"

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(step, reason)
        self.step, self.reason = step, reason

    def __str__(self) -> str:
        return f"step {self.step!r} must not run: {self.reason}"


class IdempotencyConflict(Conflict):
    """An idempotency key came again with another body: one of the two is a mistake, and the first one stands.

    >>> IdempotencyConflict("evt-7").status
    409
    """

    code = "idempotency_conflict"

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return f"idempotency key {self.key!r} was used with another body; send a new key for a new request"


class WorkspaceExists(Conflict):
    """There is a workspace of that name.

    >>> print(WorkspaceExists("shop"))
    there is a workspace 'shop' already
    """

    code = "workspace_exists"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"there is a workspace {self.name!r} already"


class NotHeld(Conflict):
    """`retry` was asked of a run that needs none.

    >>> print(NotHeld("run_7", "waiting"))
    run run_7 is waiting; only held and failed runs can be retried
    """

    code = "not_held"

    def __init__(self, run_id: str, run_status: str) -> None:
        super().__init__(run_id, run_status)
        self.run_id, self.run_status = run_id, run_status

    def __str__(self) -> str:
        return f"run {self.run_id} is {self.run_status}; only held and failed runs can be retried"


class Invalid(BideError):
    """The call is wrong, and would be wrong again.

    >>> issubclass(BadInput, Invalid), issubclass(PayloadTooLarge, Invalid)
    (True, True)
    """

    code = "invalid"
    status = 422


class BadInput(Invalid):
    """An input, payload, name or duration that cannot be taken; the message says why.

    >>> BadInput("delay='soon'").status
    422
    """

    code = "bad_input"


class InvalidAnswer(BadInput):
    """An answer that does not fit the schema of its wait, which stays open.

    >>> InvalidAnswer("int_7_1_0", ("at $.approved: 1 is not of type \\"boolean\\"",)).problems
    ('at $.approved: 1 is not of type "boolean"',)
    """

    def __init__(self, target: str, problems: tuple[str, ...]) -> None:
        super().__init__(target, problems)
        self.target, self.problems = target, problems

    def __str__(self) -> str:
        return f"the answer to {self.target!r} does not fit: {'; '.join(self.problems)}"


class BadCursor(BadInput):
    """A cursor that no page of a list gave out.

    >>> BadCursor("cursor 'x' is not one that bide gave out").status
    400
    """

    code = "bad_cursor"
    status = 400


class PayloadTooLarge(Invalid):
    """More than `max_payload_bytes`.

    >>> PayloadTooLarge("the payload cannot be stored").status
    413
    """

    code = "payload_too_large"
    status = 413


class BadDefinition(Invalid):
    """A definition that cannot work, said when it is registered.

    >>> BadDefinition("machine class Order has no step").code
    'bad_definition'
    """

    code = "bad_definition"


class LanguageError(BadDefinition):
    """A machine file that cannot be used: every problem with its line, its column and what was expected.

    >>> LanguageError(("payment.machine:1:1: the file has no machine",)).code
    'bad_machine_file'
    """

    code = "bad_machine_file"

    def __init__(self, problems: tuple[object, ...]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class BadExpression(Invalid):
    """An expression of a machine file came to nothing: the message says where and why.

    >>> BadExpression("pay.machine:7:13: nothing can be divided by 0").code
    'bad_expression'
    """

    code = "bad_expression"


class BadConfiguration(Invalid):
    """A setting or a store URL that cannot be used.

    >>> BadConfiguration("setting lease is 'soon'").code
    'bad_configuration'
    """

    code = "bad_configuration"


class TooManyItems(Invalid):
    """A unit that is stored as a whole has more items than its limit allows (U3).

    >>> TooManyItems("the input of 'score'", 10001, 10000, "await_aggregate_max_input_items").most
    10000
    """

    code = "too_many_items"

    def __init__(self, what: str, items: int, most: int, limit: str = "await_aggregate_max_output_items") -> None:
        super().__init__(what, items, most, limit)
        self.what, self.items, self.most, self.limit = what, items, most, limit

    def __str__(self) -> str:
        return (
            f"{self.what} has {self.items} items, and {self.limit} is {self.most}; raise it, or send items one by one"
        )


class BadArchive(Invalid):
    """A text is no archive of a run, or not the one that was written.

    >>> BadArchive("it ends before its seal").code
    'bad_archive'
    """

    code = "bad_archive"


class ForeignConnectionError(Invalid):
    """`connection=` got a connection that bide cannot join.

    >>> ForeignConnectionError("a sqlite3 connection cannot be joined").code
    'foreign_connection'
    """

    code = "foreign_connection"


class PolicyDenied(BideError):
    """A policy of the app does not let this happen; nothing was changed, and the denial is on record (G1).

    >>> str(PolicyDenied("cancel", "run_7", "only operators may"))
    'the policy does not allow to cancel run_7: only operators may'
    """

    code = "policy_denied"
    status = 403

    def __init__(self, action: str, target: str, reason: str) -> None:
        super().__init__(action, target, reason)
        self.action, self.target, self.reason = action, target, reason

    def __str__(self) -> str:
        return f"the policy does not allow to {self.action} {self.target}: {self.reason}"


class Unauthorized(BideError):
    """No key was sent, or it is unknown, expired or revoked: which of them is not said.

    >>> Unauthorized("send a key").status
    401
    """

    code = "unauthorized"
    status = 401


class BadSignature(Unauthorized):
    """A webhook that its provider did not sign, or not lately. Answer it with 401.

    >>> print(BadSignature("it was signed too long ago"))
    it was signed too long ago
    """

    code = "bad_signature"


class Forbidden(BideError):
    """Not for who they are: a wait is for its assignee and its group, and a key may do what its scopes say.

    >>> Forbidden("int_7_1_0", "it is for ann, not for bob").status
    403
    """

    code = "forbidden"
    status = 403

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(target, reason)
        self.target, self.reason = target, reason

    def __str__(self) -> str:
        return f"{self.target} is refused: {self.reason}"


class TooManyRequests(BideError):
    """The rate of the key or link is used up for now; `retry_after` says for how many seconds.

    >>> TooManyRequests(2).retry_after
    2
    """

    code = "too_many_requests"
    status = 429

    def __init__(self, retry_after: int) -> None:
        super().__init__(retry_after)
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"that was too much at once; try again in {self.retry_after} s"


class QuotaExceeded(TooManyRequests):
    """The workspace has as much as it may have; `setting` says of what.

    >>> print(QuotaExceeded("workspace_max_runs", 100, "live runs", 2))
    this workspace may have 100 live runs (workspace_max_runs), and has them; end some, or try again in 2 s
    """

    code = "quota_exceeded"

    def __init__(self, setting: str, limit: int, what: str, retry_after: int) -> None:
        super().__init__(retry_after)
        self.setting, self.limit, self.what = setting, limit, what

    def __str__(self) -> str:
        return (
            f"this workspace may have {self.limit} {self.what} ({self.setting}), and has them; "
            f"end some, or try again in {self.retry_after} s"
        )


class InboxFull(TooManyRequests):
    """As many signals wait in a run's inbox as may (`max_inbox`), and it waits for none of this name.

    >>> print(InboxFull("run_7", 100_000))
    run_7 has 100000 signals in its inbox (max_inbox); let it take some, or end it, and send this again
    """

    code = "inbox_full"

    def __init__(self, run_id: str, limit: int) -> None:
        super().__init__(5)
        self.args = (run_id, limit)
        self.run_id, self.limit = run_id, limit

    def __str__(self) -> str:
        return (
            f"{self.run_id} has {self.limit} signals in its inbox (max_inbox); "
            "let it take some, or end it, and send this again"
        )


class ApprovalNeeded(PolicyDenied):
    """A policy wants a person's approval first; `approval` is the run that asks for it. Once approved, it happens.

    >>> ApprovalNeeded("start", "payout", "Pay 900?", "run_7").approval
    'run_7'
    """

    code = "approval_needed"

    def __init__(self, action: str, target: str, title: str, approval: str) -> None:
        super().__init__(action, target, title)
        self.args = (action, target, title, approval)
        self.approval = approval

    def __str__(self) -> str:
        return f"to {self.action} {self.target} needs an approval ({self.reason}); {self.approval} asks for it"


class TransactionOpen(BideError):
    """A write beside the same task's own open transaction would wait for itself.

    >>> TransactionOpen("write inside the open transaction, or after it").status
    409
    """

    code = "transaction_open"
    status = 409


class RunEnded(BideError):
    """The run has no result, because it did not complete."""

    code = "run_ended"
    status = 409

    def __init__(self, run_id: str, error: RunError | None = None) -> None:
        super().__init__(run_id, error)
        self.run_id, self.error = run_id, error

    def __str__(self) -> str:
        return f"run {self.run_id} {self._ended}: {self.error}" if self.error else f"run {self.run_id} {self._ended}"

    _ended: ClassVar[str] = "ended"


class RunFailedError(RunEnded):
    """The run failed; `error` says why.

    >>> print(RunFailedError("run_7"))
    run run_7 failed
    """

    code = "run_failed"
    _ended = "failed"


class RunStoppedError(RunEnded):
    """The run stopped itself, with the reason in `error`.

    >>> print(RunStoppedError("run_7"))
    run run_7 stopped
    """

    code = "run_stopped"
    _ended = "stopped"


class RunCancelledError(RunEnded):
    """Somebody cancelled the run.

    >>> print(RunCancelledError("run_7"))
    run run_7 was cancelled
    """

    code = "run_cancelled"
    _ended = "was cancelled"


class WaitTimeoutError(BideError, TimeoutError):
    """The time given for a wait is up. Also a `TimeoutError`.

    >>> issubclass(WaitTimeoutError, TimeoutError)
    True
    """

    code = "timeout"
    status = 504


class SignalTimeoutError(WaitTimeoutError):
    """Nobody answered the signal id in time.

    >>> raise SignalTimeoutError("approval-1 was not answered")
    Traceback (most recent call last):
    bide.errors.SignalTimeoutError: approval-1 was not answered
    """

    code = "signal_timeout"


class StepFailedError(BideError):
    """A step failed as often as its policy lets it. A workflow may catch it and compensate.

    `can_retry` is false where it would fail the same way again: it raised `NonRetryable` or what `give_up_on` names,
    its result is too large, or cannot be stored. Uncaught, such an error fails the run at once.

    >>> StepFailedError("charge", "CardDeclined", "no funds", 3).attempts
    3
    """

    code = "step_failed"
    status = 409

    def __init__(self, step: str, error_type: str, message: str, attempts: int, can_retry: bool = True) -> None:
        super().__init__(step, error_type, message, attempts, can_retry)
        self.step, self.error_type, self.message, self.attempts = step, error_type, message, attempts
        self.can_retry = can_retry

    def __str__(self) -> str:
        tries = "once" if self.attempts == 1 else f"{self.attempts} times"
        return f"step {self.step!r} failed {tries}, the last time with {self.error_type}: {self.message}"


class WaitFailedError(BideError):
    """The outside said that the answer will not come, or whoever works on it fell silent.

    >>> WaitFailedError("payment", "the provider is closed").reason
    'the provider is closed'
    """

    code = "wait_failed"
    status = 409

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(step, reason)
        self.step, self.reason = step, reason

    def __str__(self) -> str:
        return f"wait {self.step!r} {self._ended}: {self.reason}"

    _ended: ClassVar[str] = "was failed from outside"


class ItemsRejectedError(WaitFailedError):
    """Some items of `step.request_each` came to nothing; `rejected` has the number and the reason of each.

    >>> print(ItemsRejectedError("pay", [(3, "no funds")], 10))
    wait 'pay' got no answer for 1 of 10 items: item 3: no funds
    """

    code = "items_rejected"

    def __init__(self, step: str, rejected: list[tuple[int, str]], items: int) -> None:
        self.rejected, self.items = rejected, items
        shown = "; ".join(f"item {item}: {reason}" for item, reason in rejected[:10])
        super().__init__(step, shown + ("; …" if len(rejected) > 10 else ""))
        self.args = (step, rejected, items)

    def __str__(self) -> str:
        return f"wait {self.step!r} got no answer for {len(self.rejected)} of {self.items} items: {self.reason}"


class WaitCancelledError(WaitFailedError):
    """An operator cancelled the wait.

    >>> print(WaitCancelledError("payment", "not needed any more"))
    wait 'payment' was cancelled from outside: not needed any more
    """

    code = "wait_cancelled"
    _ended = "was cancelled from outside"


class AnswerRefusedError(WaitFailedError):
    """An answer fits the schema of its wait, and a validator of its type refuses it: one of pydantic, `__post_init__`.

    Also where a signal that was received as a `bide.Signal` is not of its type, and no definition had it checked.

    >>> print(AnswerRefusedError("payment", "at $.iban: wrong check digits"))
    wait 'payment' got an answer that its type refuses: at $.iban: wrong check digits
    """

    code = "answer_refused"
    _ended = "got an answer that its type refuses"


class SignalCollisionError(BideError):
    """A second run waits on a signal id that an open wait holds.

    >>> SignalCollisionError("approval", "run_1").holder
    'run_1'
    """

    code = "signal_collision"
    status = 409

    def __init__(self, signal_id: str, holder: str, remedy: str = "put the run id into the signal id") -> None:
        super().__init__(signal_id, holder, remedy)
        self.signal_id, self.holder, self.remedy = signal_id, holder, remedy

    def __str__(self) -> str:
        return f"signal id {self.signal_id!r} is awaited by {self.holder} already; {self.remedy}"


class NotInAStep(BideError):
    """A workflow's body did what belongs into a step: I/O, threads, or an endless loop.

    >>> NotInAStep("do it in step.run(…)").code
    'not_in_a_step'
    """

    code = "not_in_a_step"


class HistoryMismatch(BideError):
    """The code no longer fits what the run has stored; the run is held until the code does.

    >>> HistoryMismatch("step 'charge' was a wait").code
    'history_mismatch'
    """

    code = "history_mismatch"


class RunTimeoutError(WaitTimeoutError):
    """The run did not end in the time given. It goes on.

    >>> print(RunTimeoutError("run_7", "waiting"))
    run run_7 is waiting and has not ended yet; it goes on, ask again later
    """

    code = "run_timeout"

    def __init__(self, run_id: str, run_status: str) -> None:
        super().__init__(run_id, run_status)
        self.run_id, self.run_status = run_id, run_status

    def __str__(self) -> str:
        return f"run {self.run_id} is {self.run_status} and has not ended yet; it goes on, ask again later"


class Unavailable(BideError):
    code = "unavailable"
    status = 503


class StoreUnavailable(Unavailable):
    """The store did not take the call; nothing of it was applied. `__cause__` says why.

    >>> StoreUnavailable("no connection").status
    503
    """

    code = "store_unavailable"


class Broken(BideError):
    code = "broken"
    status = 500


class SchemaTooNew(Broken):
    """A newer bide made this store.

    >>> print(SchemaTooNew("shop.db", found=4, known=3))
    shop.db has schema 4, this bide knows up to 3; it was made by a newer bide: upgrade this one
    """

    code = "schema_too_new"

    def __init__(self, store: str, found: int, known: int) -> None:
        super().__init__(store, found, known)
        self.store, self.found, self.known = store, found, known

    def __str__(self) -> str:
        return (
            f"{self.store} has schema {self.found}, this bide knows up to {self.known}; "
            "it was made by a newer bide: upgrade this one"
        )


class SchemaMissing(Broken):
    """The store lacks tables that this bide needs.

    >>> print(SchemaMissing("shop", found=0, known=3))
    shop has schema 0, this bide needs 3; run `bide migrate`
    """

    code = "schema_missing"

    def __init__(self, store: str, found: int, known: int) -> None:
        super().__init__(store, found, known)
        self.store, self.found, self.known = store, found, known

    def __str__(self) -> str:
        return f"{self.store} has schema {self.found}, this bide needs {self.known}; run `bide migrate`"


class StoreCorrupt(Broken):
    """The store is damaged: a person must look before anything is written to it.

    >>> StoreCorrupt("shop.db is malformed").status
    500
    """

    code = "store_corrupt"


class PayloadUnreadable(Broken):
    """A payload cannot be decrypted: its key is not given, or it is not what was written there.

    >>> print(PayloadUnreadable("input of runs run_7", "2025", is_missing=True))
    input of runs run_7 is encrypted under the key '2025', which is not given; add it to BIDE_PAYLOAD_KEYS
    """

    code = "payload_unreadable"

    def __init__(self, what: str, key_id: str, *, is_missing: bool = False, run_id: str = "") -> None:
        super().__init__(what, key_id)
        self.what, self.key_id, self.is_missing = what, key_id, is_missing
        self.run_id = run_id

    def __str__(self) -> str:
        if self.is_missing:
            return (
                f"{self.what} is encrypted under the key {self.key_id!r}, which is not given; "
                "add it to BIDE_PAYLOAD_KEYS"
            )
        return (
            f"{self.what} does not open under the key {self.key_id!r}: it was changed, or moved there from another "
            "row; restore it from a backup"
        )


class Cancelled(asyncio.CancelledError):
    """The run was cancelled, and its workflow may clean up: raised once, at the await that was open (W8).

    A `BaseException`, and asyncio's own kind of it, so that task groups and `finally` blocks do what they do.

    >>> issubclass(Cancelled, Exception)
    False
    """
