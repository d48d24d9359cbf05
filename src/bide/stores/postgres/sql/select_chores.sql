SELECT id, run_id, kind, data, due_at, workspace, tries
  FROM {schema}.chores
 WHERE id = ANY ($1::text::text[])
 ORDER BY id -- as everybody who locks several
   FOR UPDATE -- whoever settles a chore and whoever claims it see each other
