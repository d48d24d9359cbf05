-- The wait is closed.
DELETE FROM event_waits
 WHERE run_id = ?1
   AND no = ?2
