-- I11: no wait timed out before its deadline.
SELECT run_id, format('wait %s timed out %s early', no, deadline - closed_at)
  FROM {schema}.waits
 WHERE status = 'timed_out'
   AND (deadline IS NULL OR closed_at < deadline)
