-- I11: an open wait with a deadline is looked at by then; without a look it could never time out.
SELECT run_id, format('wait %s has a deadline, and nobody would look at it by then', no)
  FROM {schema}.waits
 WHERE status = 'waiting'
   AND deadline IS NOT NULL
   AND (due_at IS NULL OR due_at > deadline)
