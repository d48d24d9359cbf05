-- I1: an answer that is held is there, and the first wait of its signal id finds it.
WITH held (id, workspace, name) AS (
    SELECT 'hold:' || length(workspace) || ':' || workspace || ':' || name, workspace, name
      FROM {schema}.names
     WHERE kind = 'signal'
       AND run_id = ''
)
SELECT held.name, 'an answer to it is held, and is not there'
  FROM held
  LEFT JOIN {schema}.chores ON chores.id = held.id
 WHERE chores.id IS NULL
 UNION ALL
SELECT chores.id, 'is an answer that no wait would find'
  FROM {schema}.chores
  LEFT JOIN held ON held.id = chores.id
 WHERE chores.kind = 'hold'
   AND held.id IS NULL
