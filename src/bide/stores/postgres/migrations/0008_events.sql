-- The stream of each workspace, and the mutex at which events and waits for them meet: an emit holds its row for itself,
-- a commit that opens a wait shares it, both before any run. Events are numbered without repeats.
CREATE TABLE {schema}.streams (
    seq       bigint NOT NULL CHECK (seq >= 0),
    workspace text COLLATE "C" NOT NULL,
    CONSTRAINT streams_pkey PRIMARY KEY (workspace)
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Events, kept for those who look back, and to know a repeat by its id (F8).
CREATE TABLE {schema}.events (
    seq       bigint NOT NULL CHECK (seq > 0),
    at        timestamptz NOT NULL,
    started   bigint NOT NULL CHECK (started >= 0),
    resumed   bigint NOT NULL CHECK (resumed >= 0),
    workspace text COLLATE "C" NOT NULL,
    id        text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    digest    text NOT NULL,
    channel   text NOT NULL,
    data      text NOT NULL,
    CONSTRAINT events_pkey PRIMARY KEY (workspace, seq),
    CONSTRAINT events_id UNIQUE (workspace, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX events_by_name ON {schema}.events (workspace, name, seq);
COMMENT ON INDEX {schema}.events_by_name IS 'select_events_named: the events of one name, in order';
CREATE INDEX events_by_age ON {schema}.events (workspace, at, seq);
COMMENT ON INDEX {schema}.events_by_age IS 'select_first_event_since: where a look back begins';
CREATE INDEX events_by_time ON {schema}.events USING brin (at) WITH (pages_per_range = 32, autosummarize = on);
COMMENT ON INDEX {schema}.events_by_time IS 'trim_events: the oldest of all';

-- The open waits for events, where an event looks for them. Rows come and go.
CREATE TABLE {schema}.event_waits (
    no        bigint NOT NULL CHECK (no > 0),
    run_id    text COLLATE "C" NOT NULL,
    workspace text COLLATE "C" NOT NULL,
    topic     text COLLATE "C" NOT NULL,
    eq        text COLLATE "C" NOT NULL,
    pattern   text NOT NULL,
    match     text NOT NULL,
    channel   text NOT NULL,
    CONSTRAINT event_waits_pkey PRIMARY KEY (run_id, no)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX event_waits_by_topic ON {schema}.event_waits (workspace, topic, eq);
COMMENT ON INDEX {schema}.event_waits_by_topic IS 'select_listeners: who may want an event';
