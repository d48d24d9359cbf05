SELECT id, workspace, hash, name, scopes, created_at, expires_at, last_used_at, revoked_at, rate
  FROM {schema}.keys
 WHERE $1::text IS NULL OR workspace = $1
 ORDER BY id
