-- The items of pipelines' streams: one row each, whatever becomes of it (U4).
CREATE TABLE {schema}.items (
    run_id   text COLLATE "C" NOT NULL,
    section  bigint NOT NULL,
    item     bigint NOT NULL,
    status   text NOT NULL CHECK (status IN ('ready', 'waiting', 'done', 'dropped', 'rejected', 'dead')),
    stage    bigint NOT NULL,
    value    text NOT NULL,
    key      text,
    epoch    bigint NOT NULL,
    claims   bigint NOT NULL,
    attempts bigint NOT NULL,
    due_at   timestamptz CHECK (due_at IS NULL OR status = 'ready'),
    error    text,
    CONSTRAINT items_pkey PRIMARY KEY (run_id, section, item)
);

-- Only those that want a worker.
CREATE INDEX items_due ON {schema}.items (due_at) WHERE due_at IS NOT NULL;
COMMENT ON INDEX {schema}.items_due IS 'select_due_items, select_next_due';
