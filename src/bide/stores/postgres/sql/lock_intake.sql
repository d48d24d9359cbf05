-- The oldest of the intake, or of some rows of it, that no rival is just admitting. Index: the primary key.
SELECT id, command
  FROM {schema}.intake
 WHERE $2::text IS NULL OR id = ANY ($2::text::text[])
 ORDER BY seq
 LIMIT $1
   FOR UPDATE SKIP LOCKED
