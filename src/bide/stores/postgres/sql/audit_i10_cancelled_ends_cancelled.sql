-- I10: a run whose cancel was accepted ends as cancelled, whatever its clean-up does.
SELECT id, format('was cancelled, yet it ended as %s', status)
  FROM {schema}.runs
 WHERE cancel_reason IS NOT NULL
   AND status IN ('completed', 'stopped', 'failed')
