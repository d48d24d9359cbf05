-- I11: no wait timed out before its deadline.
SELECT run_id, format('wait %d timed out %d microseconds early', no, deadline - closed_at)
  FROM waits
 WHERE status = 'timed_out'
   AND (deadline IS NULL OR closed_at < deadline)
