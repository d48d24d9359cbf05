-- The ids of the keys that payloads are encrypted under, each with a text that only that key opens (G4).
CREATE TABLE sealing_keys (
    id    TEXT NOT NULL PRIMARY KEY,
    proof TEXT NOT NULL
) STRICT, WITHOUT ROWID;
