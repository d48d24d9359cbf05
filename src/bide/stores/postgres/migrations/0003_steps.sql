-- The stored outcomes of workflows: what a replay hands back (F1).
CREATE TABLE {schema}.steps (
    run_id   text COLLATE "C" NOT NULL,
    key      text COLLATE "C" NOT NULL,
    kind     text NOT NULL,
    status   text NOT NULL CHECK (status IN ('done', 'failed', 'timed_out', 'trying')),
    seq      bigint NOT NULL,
    attempts bigint NOT NULL,
    result   text,
    error    text,
    CONSTRAINT steps_pkey PRIMARY KEY (run_id, key)
);
