-- I13: a request completes with its last interaction, not before and not later.
SELECT unit.run_id, format('wait %s is %s with %s of %s', unit.no, wait.status, unit.received, unit.expected)
  FROM {schema}.units AS unit
  JOIN {schema}.waits AS wait
    ON wait.run_id = unit.run_id
   AND wait.no = unit.no
 WHERE (wait.status = 'completed' AND NOT (unit.filled AND unit.received = unit.expected))
    OR (wait.status IN ('reserved', 'waiting') AND unit.filled AND unit.received = unit.expected)
