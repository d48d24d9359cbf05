-- The waits of one number of several runs. The first parameter is a carray of the runs' ids, the second the number.
SELECT workspace, run_id, no, key, kind, status, opened_at, names, seen, partial, deadline, on_timeout, due_at,
       closed_at, cause, expected, received, cancel_children, details
  FROM carray(?1) AS wanted
 CROSS JOIN waits ON waits.run_id = wanted.value
   AND waits.no = ?2
