-- Index: the primary key.
SELECT run_id, key, kind, status, seq, attempts, result, error
  FROM carray(?1) AS wanted
 CROSS JOIN steps ON steps.run_id = wanted.value
