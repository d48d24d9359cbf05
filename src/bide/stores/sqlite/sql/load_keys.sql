SELECT id, workspace, hash, name, scopes, created_at, expires_at, last_used_at, revoked_at, rate
  FROM keys
 WHERE :workspace IS NULL OR workspace = :workspace
 ORDER BY id
