-- The oldest of the intake, or of some rows of it, unless a rival is just admitting. Index: the primary key.
-- One at a time: what was left later may rest on what was left before it, as a signal does on the start of its run, and
-- must not be decided while that is still being admitted.
SELECT id, command
  FROM {schema}.intake
 WHERE (SELECT pg_try_advisory_xact_lock(hashtextextended('bide intake {schema}', 0)))
   AND ($2::text IS NULL OR id = ANY ($2::text::text[]))
 ORDER BY seq
 LIMIT $1
   FOR UPDATE
