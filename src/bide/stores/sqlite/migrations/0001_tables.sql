-- The tables of bide. Columns are the fields of the records, in their order.
-- Times are microseconds since 1970 in UTC, lists are JSON text, payloads are the JSON text that came in.
-- Every foreign key but those of names leads its table's primary key, so deleting a run finds its rows without a scan.

-- Not WITHOUT ROWID: there, rows above a quarter of a page spill into pages of their own.
CREATE TABLE runs (
    workspace         TEXT NOT NULL,
    id                TEXT NOT NULL PRIMARY KEY,
    definition        TEXT NOT NULL,
    version           TEXT NOT NULL,
    style             TEXT NOT NULL,
    status            TEXT NOT NULL
                      CHECK (status IN ('ready', 'running', 'waiting', 'completed', 'stopped', 'failed', 'cancelled')),
    step              TEXT NOT NULL,
    state             TEXT NOT NULL,
    input             TEXT NOT NULL,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    ready_at          INTEGER NOT NULL,
    ended_at          INTEGER,
    result            TEXT,
    error             TEXT,
    held              TEXT,
    attempt           INTEGER NOT NULL CHECK (attempt >= 0),
    claims            INTEGER NOT NULL CHECK (claims >= 0),
    epoch             INTEGER NOT NULL CHECK (epoch >= 0),
    commits           INTEGER NOT NULL CHECK (commits >= 0),
    queue             TEXT NOT NULL,
    priority          INTEGER NOT NULL,
    wait_no           INTEGER NOT NULL CHECK (wait_no >= 0),
    parked_on         INTEGER,
    woken_by          INTEGER,
    open_waits        TEXT NOT NULL,
    inbox_seq         INTEGER NOT NULL,
    inbox_count       INTEGER NOT NULL CHECK (inbox_count BETWEEN 0 AND inbox_seq),
    correlation_key   TEXT,
    correlation_scope TEXT NOT NULL CHECK (correlation_scope IN ('live', 'forever')),
    parent_id         TEXT,
    parent_wait       INTEGER,
    child_no          INTEGER,
    has_children      INTEGER NOT NULL CHECK (has_children IN (0, 1)),
    cleanup_seconds   REAL,
    cancel_reason     TEXT,
    cancel_until      INTEGER,
    retry_of          TEXT,
    tags              TEXT NOT NULL,
    ledger_seq        INTEGER NOT NULL CHECK (ledger_seq >= 0),
    ledger_head       TEXT NOT NULL,
    CHECK ((ended_at IS NOT NULL) = (status IN ('completed', 'stopped', 'failed', 'cancelled'))),
    CHECK ((parked_on IS NOT NULL) = (status = 'waiting')),
    CHECK (held IS NULL OR status = 'ready'),
    CHECK ((parent_id IS NULL) = (parent_wait IS NULL))
) STRICT;

-- find_children, live_children and children_of_wait: the children of a run, or of one of its waits.
CREATE INDEX runs_by_parent ON runs (parent_id, parent_wait, id) WHERE parent_id IS NOT NULL;
-- find_runs_by_correlation_key: all runs that ever had a key, in the order they are listed.
CREATE INDEX runs_by_correlation_key ON runs (correlation_key, id) WHERE correlation_key IS NOT NULL;
-- delete_ended: the runs that ended longest ago.
CREATE INDEX runs_by_end ON runs (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE waits (
    workspace       TEXT NOT NULL,
    run_id          TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    no              INTEGER NOT NULL CHECK (no > 0),
    key             TEXT NOT NULL,
    kind            TEXT NOT NULL CHECK (kind IN ('signals', 'children', 'sleep', 'signal', 'receive')),
    status          TEXT NOT NULL
                    CHECK (status IN ('reserved', 'waiting', 'completed', 'timed_out', 'failed', 'cancelled')),
    opened_at       INTEGER NOT NULL,
    names           TEXT NOT NULL,
    seen            TEXT NOT NULL,
    partial         TEXT NOT NULL,
    deadline        INTEGER,
    on_timeout      TEXT,
    due_at          INTEGER,
    closed_at       INTEGER,
    cause           TEXT,
    expected        INTEGER NOT NULL CHECK (expected >= 0),
    received        INTEGER NOT NULL CHECK (received BETWEEN 0 AND expected),
    cancel_children INTEGER NOT NULL CHECK (cancel_children IN (0, 1)),
    details         TEXT NOT NULL,
    PRIMARY KEY (run_id, no),
    CHECK ((closed_at IS NULL) = (status IN ('reserved', 'waiting'))),
    CHECK ((closed_at IS NULL) = (cause IS NULL)),
    CHECK (closed_at IS NULL OR due_at IS NULL)
) STRICT, WITHOUT ROWID;

CREATE TABLE inbox (
    workspace   TEXT NOT NULL,
    run_id      TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    seq         INTEGER NOT NULL CHECK (seq > 0),
    id          TEXT NOT NULL,
    name        TEXT NOT NULL,
    payload     TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    PRIMARY KEY (run_id, seq)
) STRICT;

CREATE TABLE names (
    workspace  TEXT NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('correlation', 'dedup', 'signal')),
    name       TEXT NOT NULL,
    run_id     TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    digest     TEXT NOT NULL,
    message_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (workspace, kind, name)
) STRICT, WITHOUT ROWID;

-- delete_ended: the names that go with a run.
CREATE INDEX names_by_run ON names (run_id);

CREATE TABLE queue (
    run_id   TEXT NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    queue    TEXT NOT NULL,
    priority INTEGER NOT NULL,
    due_at   INTEGER NOT NULL,
    epoch    INTEGER NOT NULL,
    worker   TEXT
) STRICT, WITHOUT ROWID;

-- due_runs and until_due: within one queue and priority the due rows come first, so a backlog is not sorted.
CREATE INDEX queue_by_due ON queue (queue, priority DESC, due_at, run_id);

CREATE TABLE timers (
    run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    no     INTEGER NOT NULL CHECK (no >= 0),
    due_at INTEGER NOT NULL,
    PRIMARY KEY (run_id, no)
) STRICT, WITHOUT ROWID;

-- due_timers and until_due.
CREATE INDEX timers_by_due ON timers (due_at, run_id, no);

CREATE TABLE ledger (
    run_id  TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    seq     INTEGER NOT NULL CHECK (seq > 0),
    entries BLOB NOT NULL,      -- packed: see pages.py
    PRIMARY KEY (run_id, seq)
) STRICT;

-- No foreign key: the children that a chore is about outlive the row of their parent.
CREATE TABLE chores (
    id     TEXT NOT NULL PRIMARY KEY,
    run_id TEXT NOT NULL,
    kind   TEXT NOT NULL,
    data   TEXT NOT NULL,
    due_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- due_chores and until_due.
CREATE INDEX chores_by_due ON chores (due_at, id);

-- No foreign key: what cannot be used may be addressed to a run that never was.
CREATE TABLE unused (
    workspace TEXT NOT NULL,
    id        TEXT NOT NULL,
    run_id    TEXT NOT NULL,
    target    TEXT NOT NULL,
    name      TEXT NOT NULL,
    payload   TEXT NOT NULL,
    reason    TEXT NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (workspace, id)
) STRICT;

-- newest_unused: the newest of a workspace.
CREATE INDEX unused_by_age ON unused (workspace, at, id);
-- delete_unused_of_run: what goes with a run.
CREATE INDEX unused_by_run ON unused (run_id);
