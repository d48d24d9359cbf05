-- Which kinds of waits there are is the core's business: a list here would make every new one a migration.
CREATE TABLE waits_of_any_kind (
    workspace       TEXT NOT NULL,
    run_id          TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    no              INTEGER NOT NULL CHECK (no > 0),
    key             TEXT NOT NULL,
    kind            TEXT NOT NULL,
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

INSERT INTO waits_of_any_kind (
       workspace, run_id, no, key, kind, status, opened_at, names, seen, partial, deadline, on_timeout, due_at,
       closed_at, cause, expected, received, cancel_children, details)
SELECT workspace, run_id, no, key, kind, status, opened_at, names, seen, partial, deadline, on_timeout, due_at,
       closed_at, cause, expected, received, cancel_children, details
  FROM waits;

DROP TABLE waits;
ALTER TABLE waits_of_any_kind RENAME TO waits;

-- What the outside sees of a wait: one row per exchange.
CREATE TABLE interactions (
    workspace      TEXT NOT NULL,
    run_id         TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    no             INTEGER NOT NULL CHECK (no > 0),
    item           INTEGER NOT NULL CHECK (item >= 0),
    status         TEXT NOT NULL
                   CHECK (status IN ('pending', 'dispatching', 'waiting', 'completed', 'timed_out', 'failed', 'cancelled')),
    opened_at      INTEGER NOT NULL,
    definition     TEXT NOT NULL,
    step           TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    payload        TEXT NOT NULL,
    transport      TEXT NOT NULL,
    channel        TEXT,
    assignee       TEXT,
    "group"        TEXT,
    claimed_by     TEXT,
    answers        TEXT NOT NULL,
    answer         TEXT,
    digest         TEXT NOT NULL,
    answered_by    TEXT,
    closed_at      INTEGER,
    PRIMARY KEY (run_id, no, item),
    CHECK ((closed_at IS NULL) = (status IN ('pending', 'dispatching', 'waiting'))),
    CHECK ((answer IS NOT NULL) = (status = 'completed'))
) STRICT, WITHOUT ROWID;

-- find_interactions: the open ones of a workspace, which are few beside those that have ended.
CREATE INDEX interactions_open ON interactions (workspace, run_id, no, item)
 WHERE status IN ('pending', 'dispatching', 'waiting');

-- Chores that fail are tried again, each time by one process.
ALTER TABLE chores ADD COLUMN workspace TEXT NOT NULL DEFAULT '';
ALTER TABLE chores ADD COLUMN tries INTEGER NOT NULL DEFAULT 0 CHECK (tries >= 0);

-- No foreign key: a dead letter is kept until a person decides, longer than its run if need be.
CREATE TABLE dead_letters (
    workspace TEXT NOT NULL,
    id        TEXT NOT NULL,
    run_id    TEXT NOT NULL,
    kind      TEXT NOT NULL,
    data      TEXT NOT NULL,
    error     TEXT NOT NULL,
    tries     INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (workspace, id)
) STRICT, WITHOUT ROWID;

-- find_dead_letters: oldest first.
CREATE INDEX dead_letters_by_age ON dead_letters (workspace, at, id);
