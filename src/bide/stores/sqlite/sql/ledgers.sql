-- Every run with its ledger, page by page; a run without one comes with a page of nulls.
SELECT runs.id, runs.status, runs.ledger_seq, runs.ledger_head, ledger.seq, ledger.entries
  FROM runs
  LEFT JOIN ledger ON ledger.run_id = runs.id
 ORDER BY runs.id, ledger.seq
