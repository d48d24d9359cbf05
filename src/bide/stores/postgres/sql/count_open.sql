-- How much is open: waits by status, and dead letters.
SELECT status, count(*)
  FROM {schema}.waits
 WHERE closed_at IS NULL
 GROUP BY status
 UNION ALL
SELECT 'dead_letters', count(*)
  FROM {schema}.dead_letters
