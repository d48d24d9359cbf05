-- A page of what could not be used, oldest first. Index: unused_by_age.
SELECT workspace, id, run_id, target, name, payload, reason, at
  FROM {schema}.unused
 WHERE workspace = $1
   AND (at, id) > ($2, $3)
 ORDER BY at, id
 LIMIT $4
