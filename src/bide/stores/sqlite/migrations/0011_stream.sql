-- The ledgers of all runs in one order, that in which they were written: one writer at a time gives out the places.
-- AUTOINCREMENT, so that none is given out again when the newest pages were deleted.
CREATE TABLE pages (
    place   INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id  TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    seq     INTEGER NOT NULL CHECK (seq > 0),
    entries BLOB NOT NULL,      -- packed: see pages.py
    UNIQUE (run_id, seq)
) STRICT;
INSERT INTO pages (run_id, seq, entries) SELECT run_id, seq, entries FROM ledger ORDER BY rowid;
DROP TABLE ledger;
ALTER TABLE pages RENAME TO ledger;
