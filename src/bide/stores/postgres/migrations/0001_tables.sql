-- Ids are compared as bytes (COLLATE "C"): the order of locks is the same everywhere, whatever the database's locale.
-- No foreign keys: each would lock the run row once more for every row written. The audit asks for what they promise.

-- One row per run, and the only mutex. No index on a column that changes, so that updates stay on their page (HOT);
-- half of each page is room for them, because a batch writes neighbours together. Columns of fixed width come first,
-- they are the cheapest to find.
CREATE TABLE {schema}.runs (
    created_at        timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL,
    ready_at          timestamptz NOT NULL,
    attempt           bigint NOT NULL CHECK (attempt >= 0),
    claims            bigint NOT NULL CHECK (claims >= 0),
    epoch             bigint NOT NULL CHECK (epoch >= 0),
    commits           bigint NOT NULL CHECK (commits >= 0),
    priority          bigint NOT NULL,
    wait_no           bigint NOT NULL CHECK (wait_no >= 0),
    inbox_seq         bigint NOT NULL,
    inbox_count       bigint NOT NULL CHECK (inbox_count BETWEEN 0 AND inbox_seq),
    ledger_seq        bigint NOT NULL CHECK (ledger_seq >= 0),
    has_children      boolean NOT NULL,
    workspace         text COLLATE "C" NOT NULL,
    id                text COLLATE "C" NOT NULL,
    definition        text COLLATE "C" NOT NULL,
    version           text NOT NULL,
    style             text NOT NULL,
    status            text COLLATE "C" NOT NULL,
    step              text NOT NULL,
    queue             text COLLATE "C" NOT NULL,
    open_waits        text NOT NULL,
    tags              text NOT NULL,
    ledger_head       text NOT NULL,
    correlation_scope text NOT NULL CHECK (correlation_scope IN ('live', 'forever')),
    state             text NOT NULL,
    input             text NOT NULL,
    parked_on         bigint,
    woken_by          bigint,
    parent_wait       bigint,
    child_no          bigint,
    ended_at          timestamptz,
    cancel_until      timestamptz,
    cleanup_seconds   double precision,
    result            text,
    error             text,
    held              text,
    correlation_key   text COLLATE "C",
    parent_id         text COLLATE "C",
    cancel_reason     text,
    retry_of          text COLLATE "C",
    CONSTRAINT runs_pkey PRIMARY KEY (id),
    CONSTRAINT runs_status
        CHECK (status IN ('ready', 'running', 'waiting', 'completed', 'stopped', 'failed', 'cancelled')),
    CONSTRAINT runs_ended
        CHECK ((ended_at IS NOT NULL) = (status IN ('completed', 'stopped', 'failed', 'cancelled'))),
    CONSTRAINT runs_parked CHECK ((parked_on IS NOT NULL) = (status = 'waiting')),
    CONSTRAINT runs_held CHECK (held IS NULL OR status = 'ready'),
    CONSTRAINT runs_child CHECK ((parent_id IS NULL) = (parent_wait IS NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

CREATE INDEX runs_of_workspace ON {schema}.runs (workspace, id);
COMMENT ON INDEX {schema}.runs_of_workspace IS 'select_runs_of_workspace: the listing of a workspace, by id';

CREATE INDEX runs_of_parent ON {schema}.runs (parent_id, id) WHERE parent_id IS NOT NULL;
COMMENT ON INDEX {schema}.runs_of_parent IS 'select_live_children, select_children, select_runs_of_parent';

CREATE INDEX runs_of_correlation_key ON {schema}.runs (correlation_key, id) WHERE correlation_key IS NOT NULL;
COMMENT ON INDEX {schema}.runs_of_correlation_key IS 'select_runs_of_correlation_key: who ever held a key';

-- A summarizing index does not stand in the way of HOT updates (PostgreSQL 16 and later).
CREATE INDEX runs_ended ON {schema}.runs USING brin (ended_at) WITH (pages_per_range = 32, autosummarize = on);
COMMENT ON INDEX {schema}.runs_ended IS 'lock_ended: retention';

CREATE TABLE {schema}.waits (
    no              bigint NOT NULL CHECK (no > 0),
    opened_at       timestamptz NOT NULL,
    expected        bigint NOT NULL,
    received        bigint NOT NULL,
    cancel_children boolean NOT NULL,
    workspace       text COLLATE "C" NOT NULL,
    run_id          text COLLATE "C" NOT NULL,
    key             text NOT NULL,
    kind            text NOT NULL CHECK (kind IN ('signals', 'children', 'sleep', 'signal', 'receive')),
    status          text COLLATE "C" NOT NULL,
    names           text NOT NULL,
    seen            text NOT NULL,
    partial         text NOT NULL,
    details         text NOT NULL,
    deadline        timestamptz,
    due_at          timestamptz,
    closed_at       timestamptz,
    on_timeout      text,
    cause           text,
    CONSTRAINT waits_pkey PRIMARY KEY (run_id, no),
    CONSTRAINT waits_status
        CHECK (status IN ('reserved', 'waiting', 'completed', 'timed_out', 'failed', 'cancelled')),
    CONSTRAINT waits_closed CHECK ((closed_at IS NULL) = (status IN ('reserved', 'waiting'))),
    CONSTRAINT waits_due CHECK (due_at IS NULL OR closed_at IS NULL),
    CONSTRAINT waits_received CHECK (received BETWEEN 0 AND expected)
) WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- Signals that nobody has used up yet. Rows come and go; the table stays small.
CREATE TABLE {schema}.inbox (
    seq         bigint NOT NULL CHECK (seq > 0),
    received_at timestamptz NOT NULL,
    workspace   text COLLATE "C" NOT NULL,
    run_id      text COLLATE "C" NOT NULL,
    id          text NOT NULL,
    name        text NOT NULL,
    payload     text NOT NULL,
    CONSTRAINT inbox_pkey PRIMARY KEY (run_id, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- What is unique across runs: correlation keys that are held, dedup keys that were admitted.
CREATE TABLE {schema}.names (
    created_at timestamptz NOT NULL,
    workspace  text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL CHECK (kind IN ('correlation', 'dedup', 'signal')),
    name       text COLLATE "C" NOT NULL,
    run_id     text COLLATE "C" NOT NULL,
    digest     text NOT NULL,
    message_id text NOT NULL,
    CONSTRAINT names_pkey PRIMARY KEY (workspace, kind, name)
);
CREATE INDEX names_of_run ON {schema}.names (run_id);
COMMENT ON INDEX {schema}.names_of_run IS 'delete_ended: the names of a run go with it';

-- Runs that want a worker or have one. Small, and rewritten all the time: vacuumed early and without pauses.
CREATE TABLE {schema}.queue (
    priority bigint NOT NULL,
    due_at   timestamptz NOT NULL,
    epoch    bigint NOT NULL,
    run_id   text COLLATE "C" NOT NULL,
    queue    text COLLATE "C" NOT NULL,
    worker   text COLLATE "C",
    CONSTRAINT queue_pkey PRIMARY KEY (run_id)
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX queue_due ON {schema}.queue (queue, priority DESC, due_at, run_id);
COMMENT ON INDEX {schema}.queue_due IS 'lock_due_queue, select_next_due: the due rows of each queue and priority';

CREATE TABLE {schema}.timers (
    no     bigint NOT NULL CHECK (no >= 0),
    due_at timestamptz NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    CONSTRAINT timers_pkey PRIMARY KEY (run_id, no)
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX timers_due ON {schema}.timers (due_at, run_id, no);
COMMENT ON INDEX {schema}.timers_due IS 'lock_due_timers, select_next_due';

-- One row per commit of a run. Written once.
CREATE TABLE {schema}.ledger (
    seq     bigint NOT NULL CHECK (seq > 0),
    run_id  text COLLATE "C" NOT NULL,
    entries text NOT NULL,
    CONSTRAINT ledger_pkey PRIMARY KEY (run_id, seq)
);

CREATE TABLE {schema}.chores (
    due_at timestamptz NOT NULL,
    id     text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    kind   text NOT NULL CHECK (kind IN ('cancel_children')),
    data   text NOT NULL,
    CONSTRAINT chores_pkey PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX chores_due ON {schema}.chores (due_at, id);
COMMENT ON INDEX {schema}.chores_due IS 'select_due_chores, select_next_due';

CREATE TABLE {schema}.unused (
    at        timestamptz NOT NULL,
    workspace text COLLATE "C" NOT NULL,
    id        text COLLATE "C" NOT NULL,
    run_id    text COLLATE "C" NOT NULL,
    target    text NOT NULL,
    name      text NOT NULL,
    payload   text NOT NULL,
    reason    text NOT NULL,
    CONSTRAINT unused_pkey PRIMARY KEY (workspace, id)
);
CREATE INDEX unused_by_age ON {schema}.unused (workspace, at, id);
COMMENT ON INDEX {schema}.unused_by_age IS 'select_unused: the newest';

CREATE INDEX unused_of_run ON {schema}.unused (run_id);
COMMENT ON INDEX {schema}.unused_of_run IS 'delete_ended: what a run could not use goes with it';
