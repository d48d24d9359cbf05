-- Make what a worker holds claimable. No index: the table holds only runs that want a worker or have one.
UPDATE queue
   SET due_at = :now
 WHERE worker = :worker
RETURNING run_id
