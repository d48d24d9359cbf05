-- A page of what could not be used, oldest first. Index: unused_by_age.
SELECT workspace, id, run_id, target, name, payload, reason, at
  FROM unused
 WHERE workspace = :workspace
   AND (at, id) > (:after_at, :after_id)
 ORDER BY at, id
 LIMIT :limit
