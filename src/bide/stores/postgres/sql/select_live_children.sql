SELECT id
  FROM {schema}.runs
 WHERE parent_id = $1
   AND status IN ('ready', 'running', 'waiting')
   AND ($3::integer IS NULL OR parent_wait = $3)
   AND id > $4
 ORDER BY id
 LIMIT $2
