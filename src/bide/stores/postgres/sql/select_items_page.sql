-- One page of a stream, in the order of its items. Index: the primary key.
SELECT run_id, section, item, status, stage, value, key, epoch, claims, attempts, due_at, error
  FROM {schema}.items
 WHERE run_id = $1
   AND section = $2
   AND item > $3
 ORDER BY item
 LIMIT $4
