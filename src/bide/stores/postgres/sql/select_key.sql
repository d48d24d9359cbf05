SELECT id, workspace, hash, name, scopes, created_at, expires_at, last_used_at, revoked_at, rate, clock_timestamp()
  FROM {schema}.keys
 WHERE hash = $1
