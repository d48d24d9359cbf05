-- The stored outcomes of workflows: what a replay hands back (F1).
CREATE TABLE steps (
    run_id   TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    key      TEXT NOT NULL,
    kind     TEXT NOT NULL,
    status   TEXT NOT NULL CHECK (status IN ('done', 'failed', 'timed_out', 'trying')),
    seq      INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    result   TEXT,
    error    TEXT,
    PRIMARY KEY (run_id, key)
) STRICT, WITHOUT ROWID;
