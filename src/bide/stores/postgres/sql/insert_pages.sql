INSERT INTO {schema}.ledger (
       run_id, seq, entries)
SELECT run_id, seq, entries
  FROM unnest($1::text::text[], $2::text::bigint[], $3::text::bytea[])
    AS new (run_id, seq, entries)
