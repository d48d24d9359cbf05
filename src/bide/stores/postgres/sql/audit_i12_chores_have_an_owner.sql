-- I12: a chore is a run's, but for held answers and keys that belong to none. The run itself may be gone: a dead letter
-- outlives it, and retention does not wait for chores.
SELECT id, format('is a chore of the kind %s, and its run is %L', kind, run_id)
  FROM {schema}.chores
 WHERE (kind IN ('hold', 'forget')) <> (run_id = '')
