"""Which keys the file was sealed with: whoever opens it must have those that are still needed (G4)."""

from __future__ import annotations

import apsw

from bide.stores.sealing import Sealing, check_keys, page_prefix, still_needed, text_patterns
from bide.stores.sqlite.statements import SQL


def note_keys(connection: apsw.Connection, sealing: Sealing | None) -> None:
    """Note the key in use, and forget those that nothing is sealed with any more.

    Raises `BadConfiguration` where one is missing that is needed. Only then are the tables looked through.
    """
    known = [(str(id), str(proof)) for id, proof in connection.execute(SQL["load_sealing_keys"])]
    for key_id in check_keys(sealing, known):
        text, details = text_patterns(key_id)
        parameters = {"text": text, "details": details, "page": page_prefix(key_id)}
        if connection.execute(SQL["is_key_needed"], parameters).get:
            raise still_needed(key_id)
        connection.execute(SQL["delete_sealing_key"], (key_id,))
    proof = sealing.proof() if sealing is not None else None
    if proof is not None and proof[0] not in dict(known):
        connection.execute(SQL["insert_sealing_key"], proof)
