SELECT run_id, seq, entries FROM {schema}.ledger WHERE run_id = $1 ORDER BY seq
