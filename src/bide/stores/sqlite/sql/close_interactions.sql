-- End whatever of a wait is open.
UPDATE interactions
   SET status = ?1,
       closed_at = ?2
 WHERE run_id = ?3
   AND no = ?4
   AND status IN ('pending', 'dispatching', 'waiting')
