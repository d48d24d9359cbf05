-- What a parked run takes on disk, halved. Most of it was text that is the same in every run.

-- Numbers of one run's own never come near 2^31. The head of the chain is 32 bytes, not 64 digits. A state that is the
-- input, as most first ones are, is NULL.
ALTER TABLE {schema}.runs
    ALTER COLUMN attempt TYPE integer,
    ALTER COLUMN claims TYPE integer,
    ALTER COLUMN epoch TYPE integer,
    ALTER COLUMN commits TYPE integer,
    ALTER COLUMN wait_no TYPE integer,
    ALTER COLUMN inbox_seq TYPE integer,
    ALTER COLUMN inbox_count TYPE integer,
    ALTER COLUMN ledger_seq TYPE integer,
    ALTER COLUMN parked_on TYPE integer,
    ALTER COLUMN woken_by TYPE integer,
    ALTER COLUMN parent_wait TYPE integer,
    ALTER COLUMN child_no TYPE integer,
    ALTER COLUMN ledger_head TYPE bytea USING decode(ledger_head, 'hex'),
    ALTER COLUMN state DROP NOT NULL;

-- A wait is written twice: when it opens and when it closes. Room for the second version beside each first one would
-- double what waits take while they are open, to save one entry of one index when they close.
ALTER TABLE {schema}.waits
    ALTER COLUMN no TYPE integer,
    ALTER COLUMN expected TYPE integer,
    ALTER COLUMN received TYPE integer,
    RESET (fillfactor);

-- An open wait is its own timer: a row of `timers` with two indexes said the same again.
CREATE INDEX waits_due ON {schema}.waits (due_at) WHERE due_at IS NOT NULL;
COMMENT ON INDEX {schema}.waits_due IS 'lock_due_timers, select_next_due';
DELETE FROM {schema}.timers WHERE no > 0;
ALTER TABLE {schema}.timers ADD CONSTRAINT timers_of_runs CHECK (no = 0);

-- Pages are packed (`bide.stores.pages`); those from before keep their text behind the byte that says so. A run's second
-- page is written soon after its first: there is room for it in each leaf.
ALTER TABLE {schema}.ledger
    ALTER COLUMN seq TYPE integer,
    ALTER COLUMN entries TYPE bytea USING decode('00', 'hex') || convert_to(entries, 'UTF8');
ALTER INDEX {schema}.ledger_pkey SET (fillfactor = 70);
