-- The items of pipelines' streams: one row each, whatever becomes of it (U4).
CREATE TABLE items (
    run_id   TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    section  INTEGER NOT NULL,
    item     INTEGER NOT NULL,
    status   TEXT NOT NULL CHECK (status IN ('ready', 'waiting', 'done', 'dropped', 'rejected', 'dead')),
    stage    INTEGER NOT NULL,
    value    TEXT NOT NULL,
    key      TEXT,
    epoch    INTEGER NOT NULL,
    claims   INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    due_at   INTEGER CHECK (due_at IS NULL OR status = 'ready'),
    error    TEXT,
    PRIMARY KEY (run_id, section, item)
) STRICT, WITHOUT ROWID;

-- For workers that look for items: only those that want one.
CREATE INDEX items_by_due ON items (due_at) WHERE due_at IS NOT NULL;
