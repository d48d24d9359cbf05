-- A name may belong to no run: an answer is held for the first wait of its signal id (F7).
CREATE TABLE new_names (
    workspace  TEXT NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('correlation', 'dedup', 'signal')),
    name       TEXT NOT NULL,
    run_id     TEXT REFERENCES runs (id) ON DELETE CASCADE,
    digest     TEXT NOT NULL,
    message_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (workspace, kind, name)
) STRICT, WITHOUT ROWID;

INSERT INTO new_names (workspace, kind, name, run_id, digest, message_id, created_at)
SELECT workspace, kind, name, run_id, digest, message_id, created_at
  FROM names;

DROP TABLE names;
ALTER TABLE new_names RENAME TO names;

-- delete_ended: the names that go with a run.
CREATE INDEX names_by_run ON names (run_id);
