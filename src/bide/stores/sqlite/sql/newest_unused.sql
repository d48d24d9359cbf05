-- What could not be used of a workspace, newest first. Index: unused_by_age.
SELECT workspace, id, run_id, target, name, payload, reason, at
  FROM unused
 WHERE workspace = :workspace
 ORDER BY at DESC, id DESC
 LIMIT :limit
