-- Index: the primary key.
SELECT id, command FROM intake ORDER BY seq LIMIT ?
