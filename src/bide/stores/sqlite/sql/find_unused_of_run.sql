-- The same of one run. Index: unused_by_run.
SELECT workspace, id, run_id, target, name, payload, reason, at
  FROM unused
 WHERE run_id = :run_id
   AND +workspace = :workspace  -- of a run there are few, of a workspace many
   AND (at, id) > (:after_at, :after_id)
 ORDER BY at, id
 LIMIT :limit
