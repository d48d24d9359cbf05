DELETE FROM queue
 WHERE run_id = ?1
