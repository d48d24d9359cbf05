DELETE FROM timers
 WHERE run_id = ?1
   AND no = ?2
