SELECT hash, expires_at, revoked_at FROM keys WHERE hash = ?1
