SELECT id, secret, created_at FROM {schema}.secrets ORDER BY created_at DESC, id
