-- Write what may change of an interaction. The last parameters are its key; the others are
-- `rows.CHANGING_OF_INTERACTION`, in order.
UPDATE interactions
   SET status = ?1,
       assignee = ?2,
       "group" = ?3,
       claimed_by = ?4,
       answers = ?5,
       answer = ?6,
       digest = ?7,
       answered_by = ?8,
       closed_at = ?9
 WHERE run_id = ?10
   AND no = ?11
   AND item = ?12
