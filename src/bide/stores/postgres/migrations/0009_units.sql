-- The counts of requests, whose interactions may be very many: no rule reads them all.
CREATE TABLE {schema}.units (
    run_id     text COLLATE "C" NOT NULL,
    no         integer NOT NULL,
    expected   bigint NOT NULL,
    handed     bigint NOT NULL CHECK (handed BETWEEN 0 AND expected),
    received   bigint NOT NULL CHECK (received BETWEEN 0 AND expected),
    rejected   bigint NOT NULL CHECK (rejected BETWEEN 0 AND received),
    filled     boolean NOT NULL,
    dispatched boolean NOT NULL,
    CONSTRAINT units_pkey PRIMARY KEY (run_id, no)
);

CREATE INDEX interactions_pending ON {schema}.interactions (run_id, no, item) WHERE status = 'pending';
COMMENT ON INDEX {schema}.interactions_pending IS 'select_pending';
