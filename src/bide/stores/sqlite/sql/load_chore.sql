SELECT id, run_id, kind, data, due_at, workspace, tries
  FROM chores
 WHERE id = ?1
