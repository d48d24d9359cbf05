SELECT id, run_id, kind, data, due_at, workspace, tries
  FROM {schema}.chores
 WHERE due_at <= coalesce($1, statement_timestamp()) -- null but in tests
 ORDER BY due_at, id
 LIMIT $2
