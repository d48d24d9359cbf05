-- The stream of all ledgers. The place of a page says after which transactions it comes: it is not less than the number
-- of its own transaction, nor than that of any that had ended when the page was written, and a run is written to only
-- after whoever wrote to it before has ended. So the pages of a run are in order, and below the oldest transaction
-- that still runs no place can be taken any more. Pages from before this column come first.
ALTER TABLE {schema}.ledger ADD COLUMN place xid8 NOT NULL DEFAULT '0';
ALTER TABLE {schema}.ledger
    ALTER COLUMN place SET DEFAULT greatest(pg_current_xact_id(), pg_snapshot_xmax(pg_current_snapshot()));

-- The pages of one batch have one place: their entries of the index are kept as one list.
CREATE INDEX ledger_stream ON {schema}.ledger (place);
COMMENT ON INDEX {schema}.ledger_stream IS 'select_stream, select_stream_end: the ledgers of all runs in one order';
