"""Admission: where transports hand in what came back. Durable when it returns (U6, U8, W7)."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Sequence

from bide.core.commands import Done, Failed, Receipt, Reply, TakenIn
from bide.core.exchanging import Given, Reject, TakeIn, correlation_id, interaction_of, terms_of
from bide.core.payloads import BadPayload, digest, encode_payload
from bide.core.records import RunId, Wait, run_of_interaction
from bide.core.requests import Answer as AnswerCommand
from bide.core.requests import KeepPoison
from bide.engine.figures import dropped
from bide.engine.runtime import Runtime
from bide.engine.transport import Answer, ListeningTransport, Poison
from bide.stores.interface import WaitFilter

log = logging.getLogger("bide.transports")

REMEMBERED = 1000  # waits whose terms are kept at hand
AT_ONCE = 1000  # answers to one wait that one commit takes in


class Admitting:
    """What came back over one transport, on its way in."""

    def __init__(self, runtime: Runtime, transport: str) -> None:
        self._runtime = runtime
        self._actor = f"transport:{transport}"
        self._waits: dict[tuple[RunId, int], Wait] = {}

    async def admit(self, answers: Sequence[Answer]) -> Sequence[Receipt]:
        """Answers to items of the same wait go in together, each judged for itself; the others one by one."""
        receipts: dict[int, Receipt] = {}
        together: dict[str, tuple[Wait, list[tuple[int, Given]]]] = {}
        alone: list[tuple[int, AnswerCommand | Reject]] = []
        for at, answer in enumerate(answers):
            found = await self._judged(answer)
            match found:
                case Receipt():
                    receipts[at] = self._turned_away(found)
                case wait, Given() as given:
                    together.setdefault(wait.id, (wait, []))[1].append((at, given))
                case _, command:
                    alone.append((at, command))
        commits = [self._together(wait, given) for wait, given in together.values()]
        commits += [self._alone(at, command) for at, command in alone]
        for committed in await asyncio.gather(*commits):
            receipts.update(committed)
        return [receipts[at] for at in range(len(answers))]

    def _turned_away(self, receipt: Receipt) -> Receipt:
        """What is handed on is counted where it is committed; what is turned away here, here."""
        self._runtime.figures.drop(dropped(receipt) or "not_found")
        return receipt

    async def _judged(self, answer: Answer) -> Receipt | tuple[Wait, Given | AnswerCommand | Reject]:
        """Whom an answer is for and as what it goes in; or why it does not."""
        id = answer.interaction_id or interaction_of(answer.correlation_id or "") or ""
        found = run_of_interaction(id)
        wait = await self._wait(*found[:2]) if found is not None else None
        if found is None or wait is None:
            return Receipt(outcome="no_target", reason="not_found")
        if answer.workspace is not None and answer.workspace != wait.workspace:
            return Receipt(outcome="no_target", reason="wrong_workspace")
        run_id, no, item = found
        if wait.kind != "request":
            return Receipt(outcome="no_target", reason="not_found")
        terms = terms_of(wait)
        if answer.correlation_id is not None:
            genuine = correlation_id(terms.nonce, run_id, wait.key, no, item)
            if not hmac.compare_digest(genuine.encode(), answer.correlation_id.encode("utf-8", "surrogatepass")):
                return Receipt(outcome="no_target", reason="bad_token")
        given = self._given(answer, wait, id, item)
        if isinstance(given, Receipt):
            return given
        return wait, given if terms.items else self._command(wait, given)

    async def _together(self, wait: Wait, given: Sequence[tuple[int, Given]]) -> dict[int, Receipt]:
        receipts: dict[int, Receipt] = {}
        for start in range(0, len(given), AT_ONCE):
            part = given[start : start + AT_ONCE]
            taken = await self._take_in(wait, [each for _, each in part])
            receipts.update(zip((at for at, _ in part), taken, strict=True))
        return receipts

    async def _take_in(self, wait: Wait, given: Sequence[Given]) -> Sequence[Receipt]:
        hands = self._runtime.item_work
        command = TakeIn(
            workspace=wait.workspace,
            actor=self._actor,
            run_id=wait.run_id,
            no=wait.no,
            given=tuple(given),
            offer=hands.offer() if hands is not None else None,
        )
        reply: Reply = (await self._runtime.committer.submit(command)).reply
        if isinstance(reply, Failed) and len(given) > 1:  # one that cannot be decided takes none of the others along
            single = await asyncio.gather(*(self._take_in(wait, [each]) for each in given))
            return [receipt for receipts in single for receipt in receipts]
        if isinstance(reply, Failed):
            raise reply.error
        assert isinstance(reply, TakenIn), f"answers over a transport were answered with {reply!r}"
        if hands is not None and reply.run is not None and reply.items:
            hands.take(reply.run, reply.items)
        return reply.receipts

    async def _alone(self, at: int, command: AnswerCommand | Reject) -> dict[int, Receipt]:
        reply: Reply = (await self._runtime.committer.submit(command)).reply
        if isinstance(reply, Failed):
            raise reply.error
        assert isinstance(reply, Receipt), f"an answer over a transport was answered with {reply!r}"
        return {at: reply}

    async def _wait(self, run_id: RunId, no: int) -> Wait | None:
        """The wait as it was when it was first asked for: what is looked at here never changes."""
        known = self._waits.get((run_id, no))
        if known is None:
            found = await self._runtime.store.waits(
                WaitFilter(workspace=None, run_id=run_id, no=no, status=None), after=None, limit=1
            )
            if not found:
                return None
            if len(self._waits) >= REMEMBERED:
                self._waits.clear()
            known = self._waits[(run_id, no)] = found[0]
        return known

    def _given(self, answer: Answer, wait: Wait, id: str, item: int) -> Given | Receipt:
        message_id = self._runtime.ports.message_id()
        if answer.reason is not None:
            reason = answer.reason[:4000].replace("\x00", "\ufffd")
            return Given(item=item, target=id, message_id=message_id, reason=reason, by=answer.by)
        settings = self._runtime.settings
        most = settings.max_unit_bytes if terms_of(wait).many else settings.max_payload_bytes
        try:
            data = encode_payload(answer.data, max_bytes=most)
        except BadPayload as error:
            return Receipt(outcome="invalid", run_id=wait.run_id, wait_id=wait.id, reason=str(error))
        return Given(item=item, target=id, message_id=message_id, data=data, digest=digest(data)[:32], by=answer.by)

    def _command(self, wait: Wait, given: Given) -> AnswerCommand | Reject:
        """To a wait that has one interaction."""
        if given.reason is not None:
            return Reject(
                workspace=wait.workspace,
                actor=self._actor,
                run_id=wait.run_id,
                no=wait.no,
                item=given.item,
                target=given.target,
                reason=given.reason,
                message_id=given.message_id,
                by=given.by,
            )
        return AnswerCommand(
            workspace=wait.workspace,
            actor=self._actor,
            run_id=wait.run_id,
            no=wait.no,
            item=given.item,
            target=given.target,
            message_id=given.message_id,
            data=given.data,
            digest=given.digest,
            by=given.by,
        )

    async def bury(self, poison: Poison) -> None:
        self._runtime.figures.drop("invalid_payload")
        command = KeepPoison(
            workspace="default",
            actor=self._actor,
            run_id=RunId(""),
            id=f"{self._actor}:{poison.id}",
            text=poison.text,
            reason=poison.reason,
        )
        reply = (await self._runtime.committer.submit(command)).reply
        assert isinstance(reply, Done)


class Listeners:
    """The listening transports of one engine, each begun again after a pause where it breaks."""

    LONGEST_PAUSE = 30.0

    def __init__(self, runtime: Runtime, transports: Sequence[ListeningTransport]) -> None:
        self._runtime = runtime
        self._transports = transports
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._tasks = {asyncio.create_task(self._listen(transport)) for transport in self._transports}

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = set()

    async def _listen(self, transport: ListeningTransport) -> None:
        pause = 1.0
        while True:
            began = self._runtime.ports.monotonic()
            try:
                await transport.listen(Admitting(self._runtime, transport.name))
                log.warning("transport %s stopped listening; it begins again", transport.name)
            except Exception:
                log.exception("transport %s broke while it listened; it begins again", transport.name)
            if self._runtime.ports.monotonic() - began > 60:
                pause = 1.0
            await asyncio.sleep(pause)
            pause = min(self.LONGEST_PAUSE, pause * 2)
