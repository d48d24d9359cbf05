-- The counts of requests, whose interactions may be very many: no rule reads them all.
CREATE TABLE units (
    run_id     TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    no         INTEGER NOT NULL,
    expected   INTEGER NOT NULL,
    handed     INTEGER NOT NULL CHECK (handed BETWEEN 0 AND expected),
    received   INTEGER NOT NULL CHECK (received BETWEEN 0 AND expected),
    rejected   INTEGER NOT NULL CHECK (rejected BETWEEN 0 AND received),
    filled     INTEGER NOT NULL CHECK (filled IN (0, 1)),
    dispatched INTEGER NOT NULL CHECK (dispatched IN (0, 1)),
    PRIMARY KEY (run_id, no)
) STRICT, WITHOUT ROWID;

-- find_pending: what the outbox has to send next.
CREATE INDEX interactions_pending ON interactions (run_id, no, item) WHERE status = 'pending';
