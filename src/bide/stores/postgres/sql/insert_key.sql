-- A repeat after a lost answer changes nothing.
INSERT INTO {schema}.keys (id, workspace, hash, name, scopes, created_at, expires_at, last_used_at, revoked_at, rate)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
    ON CONFLICT (id) DO NOTHING
