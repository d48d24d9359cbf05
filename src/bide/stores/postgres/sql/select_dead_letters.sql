-- A page of dead letters, oldest first. Index: dead_letters_by_age.
SELECT workspace, id, run_id, kind, data, error, tries, at
  FROM {schema}.dead_letters
 WHERE workspace = $1
   AND (at, id) > ($2, $3)
 ORDER BY at, id
 LIMIT $4
