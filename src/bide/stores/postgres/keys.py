"""Which keys the schema was sealed with: whoever opens it must have those that are still needed (G4)."""

from __future__ import annotations

from collections.abc import Mapping

from bide.stores.postgres.sessions import Connection
from bide.stores.sealing import Sealing, check_keys, page_prefix, still_needed, text_patterns

SLOW_SECONDS = 3600.0


async def note_keys(connection: Connection, sql: Mapping[str, str], sealing: Sealing | None) -> None:
    """Note the key in use, and forget those that nothing is sealed with any more.

    Raises `BadConfiguration` where one is missing that is needed. Only then are the tables looked through.
    """
    known = [(id, proof) for id, proof in await connection.fetch(sql["select_sealing_keys"])]
    for key_id in check_keys(sealing, known):
        parameters = (*text_patterns(key_id), page_prefix(key_id))
        if await connection.fetchval(sql["select_key_needed"], *parameters, timeout=SLOW_SECONDS):
            raise still_needed(key_id)
        await connection.execute(sql["delete_sealing_key"], key_id)
    proof = sealing.proof() if sealing is not None else None
    if proof is not None and proof[0] not in dict(known):
        await connection.execute(sql["insert_sealing_key"], *proof)
