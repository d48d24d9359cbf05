-- Runs by status.
SELECT status, count(*)
  FROM runs
 WHERE :workspace IS NULL
    OR workspace = :workspace
 GROUP BY status
