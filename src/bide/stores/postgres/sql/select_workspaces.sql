SELECT name, created_at FROM {schema}.workspaces ORDER BY name
