SELECT workspace, run_id, seq, id, name, payload, received_at
  FROM {schema}.inbox
 WHERE run_id = ANY ($1::text::text[])
 ORDER BY run_id, seq
