SELECT id, secret, created_at FROM secrets ORDER BY created_at DESC, id
