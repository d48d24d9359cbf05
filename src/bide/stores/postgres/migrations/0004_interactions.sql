-- Which kinds of waits and chores there are is the core's business: a list here would make every new one a migration.
ALTER TABLE {schema}.waits DROP CONSTRAINT waits_kind_check;
ALTER TABLE {schema}.chores DROP CONSTRAINT chores_kind_check;

-- What the outside sees of a wait: one row per exchange, written a few times.
CREATE TABLE {schema}.interactions (
    no             bigint NOT NULL CHECK (no > 0),
    item           bigint NOT NULL CHECK (item >= 0),
    opened_at      timestamptz NOT NULL,
    workspace      text COLLATE "C" NOT NULL,
    run_id         text COLLATE "C" NOT NULL,
    status         text COLLATE "C" NOT NULL,
    definition     text COLLATE "C" NOT NULL,
    step           text NOT NULL,
    correlation_id text NOT NULL,
    transport      text NOT NULL,
    digest         text NOT NULL,
    payload        text NOT NULL,
    answers        text NOT NULL,
    closed_at      timestamptz,
    channel        text,
    assignee       text,
    "group"        text,
    claimed_by     text,
    answered_by    text,
    answer         text,
    CONSTRAINT interactions_pkey PRIMARY KEY (run_id, no, item),
    CONSTRAINT interactions_status
        CHECK (status IN ('pending', 'dispatching', 'waiting', 'completed', 'timed_out', 'failed', 'cancelled')),
    CONSTRAINT interactions_closed CHECK ((closed_at IS NULL) = (status IN ('pending', 'dispatching', 'waiting'))),
    CONSTRAINT interactions_answered CHECK ((answer IS NOT NULL) = (status = 'completed'))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

CREATE INDEX interactions_open ON {schema}.interactions (workspace, run_id, no, item)
 WHERE status IN ('pending', 'dispatching', 'waiting');
COMMENT ON INDEX {schema}.interactions_open IS 'select_open_interactions: the inbox of a workspace';

-- Chores that fail are tried again, each time by one process.
ALTER TABLE {schema}.chores
    ADD COLUMN workspace text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN tries bigint NOT NULL DEFAULT 0 CHECK (tries >= 0);

CREATE TABLE {schema}.dead_letters (
    at        timestamptz NOT NULL,
    tries     bigint NOT NULL,
    workspace text COLLATE "C" NOT NULL,
    id        text COLLATE "C" NOT NULL,
    run_id    text COLLATE "C" NOT NULL,
    kind      text NOT NULL,
    data      text NOT NULL,
    error     text NOT NULL,
    CONSTRAINT dead_letters_pkey PRIMARY KEY (workspace, id)
);
CREATE INDEX dead_letters_by_age ON {schema}.dead_letters (workspace, at, id);
COMMENT ON INDEX {schema}.dead_letters_by_age IS 'select_dead_letters: oldest first';
