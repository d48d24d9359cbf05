"""`audit` and `migrate`: keeping a store in order."""

from __future__ import annotations

import asyncio

from bide.cli.options import StorePlace
from bide.cli.output import Output, fields
from bide.cli.session import StoreSession, perform_on_store, without_password

MEANINGS = {
    "I1": "every admitted signal is unread, was used once, or went with its run",
    "I2": "a signal is used by one step only",
    "I3": "a step uses up only signals that it was handed",
    "I4": "a waiting run has an open wait and no unread signal that should have woken it",
    "I5": "a wait ends once, and the run knows which of its waits are open",
    "I6": "a token is open only while its wait is",
    "I7": "a run ends once, and nothing of an ended run stays open",
    "I8": "the claims of a run are numbered upwards, and only the newest may commit",
    "I9": "a running run has a lease, a ready one is in the queue",
    "I10": "a cancelled run makes no progress",
    "I11": "every deadline has its timer, and no timer is without a deadline",
    "I12": "what is sent belongs to a wait",
    "I13": "a parent counts each child's end once, and goes on when all have ended",
    "I14": "rows belong together and to one workspace",
    "I15": "a request that is repeated has the effect of one",
    "I16": "the ledger is whole, and it tells of the status and the payloads that the run has",
    "I17": "what was acknowledged is stored",
    "I18": "nothing is lost and nothing is counted twice",
}

UNASKED = {
    "I6": "tokens are signed, not stored; that none works once its wait is over is decided whenever one is shown",
    "I17": "only those who were answered know what was acknowledged",
}
"""Invariants that a store at rest cannot be asked about, and why; the tests of bide hold it to them."""

ASKED = tuple(invariant for invariant in MEANINGS if invariant not in UNASKED)


def audit(
    *,
    at: StorePlace,
) -> int:
    """Check every invariant, on the whole store.

    Prints which were asked, and each row that breaks one with what should hold; the exit code is 1 then.
    """

    async def work(session: StoreSession) -> int:
        violations = await session.store.audit()
        out = session.out
        if out.as_json:
            items = [{**fields(v), "meaning": MEANINGS.get(v.invariant)} for v in violations]
            out.value({"items": items, "next_cursor": None, "asked": list(ASKED), "not_asked": UNASKED})
        elif not violations:
            counts = await session.store.count_runs(None)
            out.line(f"all invariants that were asked hold ({sum(counts.values())} runs)", "green")
        else:
            for violation in violations:
                out.sentence(f"{violation.id} {violation.detail}", bullet=f"{violation.invariant:<4}", style="red")
                meaning = MEANINGS.get(violation.invariant)
                if meaning is not None:
                    out.sentence(f"it should hold that {meaning}", bullet="    ")
            out.note(f"{len(violations)} broken; stop the workers, keep a copy of the store, and look at these first")
        if not out.as_json:
            out.sentence(", ".join(ASKED), bullet="asked: ")
            for invariant, why in UNASKED.items():
                out.sentence(f"{invariant}: {why}", bullet="not asked: ")
        return 1 if violations else 0

    return perform_on_store(at, work)


def migrate(
    *,
    at: StorePlace,
) -> int:
    """Bring the schema of the store up to date.

    PostgreSQL needs it; other stores do it by themselves.
    """
    url = at.open_app().settings().store
    out = Output(as_json=at.json)
    taken: list[int] = []
    if url.startswith(("postgresql://", "postgres://")):
        taken = asyncio.run(_migrate_postgres(url))
        done = f"took step {', '.join(map(str, taken))}" if taken else "it was up to date"
        said = f"{without_password(url)}: {done}"
    else:
        from bide.engine.runtime import open_store

        open_store(url, at.open_app().settings())  # a wrong URL is said here too
        said = f"{url}: nothing to do; it is brought up to date whenever it is opened"
    if out.as_json:
        out.value({"store": without_password(url), "steps": taken, "message": said})
    else:
        out.line(said)
    return 0


async def _migrate_postgres(url: str) -> list[int]:
    from bide.engine.runtime import open_store
    from bide.engine.settings import Settings

    open_store(url, Settings())  # says what is wrong with the URL or what is not installed
    from bide.stores.postgres.schema import migrate as take_steps

    return await take_steps(url)
