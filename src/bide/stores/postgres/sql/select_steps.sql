-- What a turn of a workflow begins with: the steps of its run, and how far its workspace's stream has come, as a row
-- without a run. Index: the primary keys.
SELECT run_id, key, kind, status, seq, attempts, result, error
  FROM {schema}.steps
 WHERE run_id = ANY ($1::text::text[])
 UNION ALL
SELECT NULL, workspace, 'stream', 'done', seq, 0, NULL, NULL
  FROM {schema}.streams
 WHERE workspace = ANY ($2::text::text[])
