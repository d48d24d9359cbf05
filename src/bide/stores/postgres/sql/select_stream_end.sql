-- The last place that is settled. Index: ledger_stream.
SELECT max(place)::text
  FROM {schema}.ledger
 WHERE place < (SELECT pg_snapshot_xmin(pg_current_snapshot()))
