-- Ids of the children of a run, oldest first. Index: runs_by_parent.
SELECT id
  FROM runs
 WHERE parent_id = :parent_id
   AND id > :after
   AND (:workspace IS NULL OR workspace = :workspace)
   AND (:status IS NULL OR status = :status)
   AND (:definition IS NULL OR definition = :definition)
   AND (:held = 0 OR held IS NOT NULL)
   AND (
           :tags = '{}'
           OR NOT EXISTS (
               SELECT 1
                 FROM json_each(:tags) AS wanted
                WHERE NOT EXISTS (
                          SELECT 1
                            FROM json_each(runs.tags) AS tag
                           WHERE tag.key = wanted.key
                             AND tag.value = wanted.value
                      )
           )
       )
 ORDER BY id
 LIMIT :limit
