-- A page of dead letters, oldest first. Index: dead_letters_by_age.
SELECT workspace, id, run_id, kind, data, error, tries, at
  FROM dead_letters
 WHERE workspace = :workspace
   AND (at, id) > (:after_at, :after_id)
 ORDER BY at, id
 LIMIT :limit
