-- The same of one run. Index: unused_of_run.
SELECT workspace, id, run_id, target, name, payload, reason, at
  FROM {schema}.unused
 WHERE run_id = $5
   AND workspace = $1
   AND (at, id) > ($2, $3)
 ORDER BY at, id
 LIMIT $4
