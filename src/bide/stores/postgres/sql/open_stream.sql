-- A workspace that has no stream yet gets one: there must be a row to lock.
INSERT INTO {schema}.streams (workspace, seq)
VALUES ($1, 0)
    ON CONFLICT (workspace) DO NOTHING
