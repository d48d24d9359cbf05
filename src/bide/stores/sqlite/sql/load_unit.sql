SELECT run_id, no, expected, handed, received, rejected, filled, dispatched
  FROM units
 WHERE run_id = ?1
   AND no = ?2
