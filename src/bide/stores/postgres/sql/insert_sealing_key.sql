INSERT INTO {schema}.sealing_keys (id, proof) VALUES ($1, $2) ON CONFLICT DO NOTHING
