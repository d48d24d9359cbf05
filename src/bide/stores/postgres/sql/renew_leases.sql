-- Extend the leases of claims that hold still. Rows that somebody is writing are passed over and asked for one by one:
-- who waits for a row here must not hold another.
WITH held AS (
    SELECT queue.run_id
      FROM unnest($1::text::text[], $2::text::bigint[]) AS claim (run_id, epoch)
      JOIN {schema}.queue
        ON queue.run_id = claim.run_id
       AND queue.epoch = claim.epoch
     WHERE queue.worker IS NOT NULL
       FOR UPDATE OF queue SKIP LOCKED
)
UPDATE {schema}.queue
   SET due_at = coalesce($3, clock_timestamp()) + $4::interval
  FROM held
 WHERE queue.run_id = held.run_id
RETURNING queue.run_id
