-- One page of a ledger, by run and its first entry.
SELECT run_id, seq, entries
  FROM {schema}.ledger
 WHERE run_id = $1
   AND seq = $2
