-- The first one stands; whoever comes second uses it.
INSERT INTO secrets (id, secret, created_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING
