-- Write what may change of a wait. The last parameters are its run and number; the others are
-- `rows.CHANGING_OF_WAIT`, in order.
UPDATE waits
   SET key = ?1,
       status = ?2,
       names = ?3,
       seen = ?4,
       partial = ?5,
       deadline = ?6,
       on_timeout = ?7,
       due_at = ?8,
       closed_at = ?9,
       cause = ?10,
       expected = ?11,
       received = ?12,
       cancel_children = ?13,
       details = ?14
 WHERE run_id = ?15
   AND no = ?16
