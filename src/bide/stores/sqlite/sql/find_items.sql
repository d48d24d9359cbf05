-- One page of a stream, in the order of its items. Index: the primary key.
SELECT run_id, section, item, status, stage, value, key, epoch, claims, attempts, due_at, error
  FROM items
 WHERE run_id = :run_id
   AND section = :section
   AND item > :after
 ORDER BY item
 LIMIT :limit
