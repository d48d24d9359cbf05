INSERT INTO {schema}.workspaces (name, created_at) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING 1
