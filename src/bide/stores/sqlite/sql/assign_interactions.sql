-- Give whatever of a wait is open to others.
UPDATE interactions
   SET assignee = ?1,
       "group" = ?2,
       claimed_by = NULL
 WHERE run_id = ?3
   AND no = ?4
   AND status IN ('pending', 'dispatching', 'waiting')
