INSERT INTO {schema}.intake (id, command) VALUES ($1, $2)
