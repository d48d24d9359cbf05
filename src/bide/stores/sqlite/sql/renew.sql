-- Extend the leases whose epoch still holds; returns the runs that were extended. Claims are a JSON object of run id
-- to epoch. A lease that has ended but was not taken is extended too: only an epoch ends a claim.
UPDATE queue
   SET due_at = :until
  FROM json_each(:claims) AS claim
 WHERE queue.run_id = claim.key
   AND queue.epoch = claim.value
   AND queue.worker IS NOT NULL
RETURNING run_id
