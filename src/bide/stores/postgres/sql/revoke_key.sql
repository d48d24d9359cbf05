UPDATE {schema}.keys
   SET revoked_at = coalesce($2::timestamptz, clock_timestamp())
 WHERE id = $1
   AND revoked_at IS NULL
RETURNING 1
