-- Write what may change of a wait. The last parameters are its run and number; the others are
-- `rows.CHANGING_OF_WAIT`, in order.
UPDATE waits
   SET status = ?1,
       partial = ?2,
       deadline = ?3,
       due_at = ?4,
       closed_at = ?5,
       cause = ?6,
       received = ?7,
       details = ?8
 WHERE run_id = ?9
   AND no = ?10
