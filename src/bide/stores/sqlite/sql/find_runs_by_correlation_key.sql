-- Ids of the runs that have or had a correlation key, oldest first. Index: runs_by_correlation_key.
SELECT id
  FROM runs
 WHERE correlation_key = :correlation_key
   AND id > :after
   AND (:workspace IS NULL OR workspace = :workspace)
   AND (:status IS NULL OR status = :status)
   AND (:definition IS NULL OR definition = :definition)
   AND (:held = 0 OR held IS NOT NULL)
   AND (:parent_id IS NULL OR parent_id = :parent_id)
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
