-- The next pages of all ledgers, from a place on. Index: ledger_stream. Those of other workspaces come without their
-- entries: whoever reads goes on after them.
WITH next AS MATERIALIZED (
    SELECT place, run_id, seq, entries
      FROM {schema}.ledger
     WHERE place >= $2::text::xid8
       AND (place, run_id, seq) >= ($2::text::xid8, $3, $4)
       -- Whoever still writes has a place from here on, and may be seen later.
       AND place < (SELECT pg_snapshot_xmin(pg_current_snapshot()))
     ORDER BY place, run_id, seq
     LIMIT $5
)
SELECT next.place::text, next.run_id, next.seq, CASE WHEN run.workspace = $1 THEN next.entries END AS entries
  FROM next
  LEFT JOIN {schema}.runs AS run ON run.id = next.run_id
 ORDER BY next.place, next.run_id, next.seq
