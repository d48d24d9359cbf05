-- One wait by run and number.
SELECT workspace, run_id, no, key, kind, status, opened_at, names, seen, partial, deadline, on_timeout, due_at,
       closed_at, cause, expected, received, cancel_children, details
  FROM waits
 WHERE run_id = ?1
   AND no = ?2
