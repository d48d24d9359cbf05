-- Chores that are due, earliest first. Index: chores_by_due.
SELECT id, run_id, kind, data, due_at, workspace, tries
  FROM chores
 WHERE due_at <= :now
 ORDER BY due_at, id
 LIMIT :limit
