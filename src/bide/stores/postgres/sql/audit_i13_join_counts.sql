-- I13: a join has counted exactly the children that ended. Once the parent is final, retention may take children.
SELECT waits.run_id,
       format('wait %s counted %s ended children, %s have ended', waits.no, waits.received, count(child.id))
  FROM {schema}.waits
  JOIN {schema}.runs ON runs.id = waits.run_id
  LEFT JOIN {schema}.runs AS child
    ON child.parent_id = waits.run_id
   AND child.parent_wait = waits.no
   AND child.ended_at IS NOT NULL
 WHERE waits.kind = 'children'
   AND waits.status IN ('waiting', 'completed')
 GROUP BY waits.run_id, waits.no, waits.received, runs.ended_at
HAVING count(child.id) > waits.received
    OR (count(child.id) < waits.received AND runs.ended_at IS NULL)
