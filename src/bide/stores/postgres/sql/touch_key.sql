UPDATE {schema}.keys SET last_used_at = coalesce($2::timestamptz, clock_timestamp()) WHERE id = $1
