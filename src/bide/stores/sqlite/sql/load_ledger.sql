-- The ledger of one run, page by page.
SELECT run_id, seq, entries
  FROM ledger
 WHERE run_id = ?1
 ORDER BY seq
