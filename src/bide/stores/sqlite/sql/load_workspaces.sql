SELECT name, created_at FROM workspaces ORDER BY name
