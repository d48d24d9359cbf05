-- One arrival that was kept. Index: the primary key.
SELECT workspace, id, run_id, target, name, payload, reason, at
  FROM unused
 WHERE workspace = ?1
   AND id = ?2
