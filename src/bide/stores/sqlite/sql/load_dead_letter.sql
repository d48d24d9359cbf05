SELECT workspace, id, run_id, kind, data, error, tries, at
  FROM dead_letters
 WHERE workspace = ?1
   AND id = ?2
