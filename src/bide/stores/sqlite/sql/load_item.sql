SELECT run_id, section, item, status, stage, value, key, epoch, claims, attempts, due_at, error
  FROM items
 WHERE run_id = ?1
   AND section = ?2
   AND item = ?3
