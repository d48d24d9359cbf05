-- The children that a wait joins. Index: runs_by_parent.
SELECT id
  FROM runs
 WHERE parent_id = ?1
   AND parent_wait = ?2
