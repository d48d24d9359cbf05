-- Children of a run, or of one of its waits, that are not final, oldest first. Index: runs_by_parent.
SELECT id
  FROM runs
 WHERE parent_id = :run_id
   AND ended_at IS NULL
   AND (:wait_no IS NULL OR parent_wait = :wait_no)
   AND id > :after
 ORDER BY id
 LIMIT :limit
