DELETE FROM inbox
 WHERE run_id = ?1
   AND seq = ?2
