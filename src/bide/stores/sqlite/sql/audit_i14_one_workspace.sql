-- I14: everything of a run, its children too, is in its workspace.
WITH belongs (run_id, workspace, what) AS (
    SELECT run_id, workspace, format('wait %d', no) FROM waits
     UNION ALL
    SELECT run_id, workspace, format('signal %s', id) FROM inbox
     UNION ALL
    SELECT run_id, workspace, format('%s name %s', kind, name) FROM names
     UNION ALL
    SELECT parent_id, workspace, format('child %s', id) FROM runs WHERE parent_id IS NOT NULL
)
SELECT runs.id, format('%s is in another workspace', belongs.what)
  FROM belongs
  JOIN runs ON runs.id = belongs.run_id
 WHERE runs.workspace <> belongs.workspace
