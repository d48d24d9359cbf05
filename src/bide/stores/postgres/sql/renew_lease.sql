-- The same for one claim, waiting for whoever writes its row.
UPDATE {schema}.queue
   SET due_at = coalesce($3, clock_timestamp()) + $4::interval
 WHERE run_id = $1
   AND epoch = $2
   AND worker IS NOT NULL
RETURNING run_id
