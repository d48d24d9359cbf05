-- One row at a time: who waits for a row here must not hold another.
UPDATE {schema}.queue
   SET due_at = coalesce($3, clock_timestamp())
 WHERE run_id = $1
   AND worker = $2
RETURNING run_id
