-- I5: a run lists exactly its open waits.
WITH
listed (run_id, nos) AS (
    SELECT id, (SELECT json_group_array(value ORDER BY value) FROM json_each(runs.open_waits))
      FROM runs
),
found (run_id, nos) AS (
    SELECT run_id, json_group_array(no ORDER BY no)
      FROM waits
     WHERE status IN ('reserved', 'waiting')
     GROUP BY run_id
)
SELECT listed.run_id, format('says that waits %s are open, %s are', listed.nos, coalesce(found.nos, '[]'))
  FROM listed
  LEFT JOIN found ON found.run_id = listed.run_id
 WHERE listed.nos <> coalesce(found.nos, '[]')
