-- I13: a request counts exactly its interactions: all, those handed over, those that have ended, those of them that came
-- to nothing. A wait that ended early ended them all at once, and counts no more.
SELECT unit.run_id,
       format('wait %d counts %d, %d, %d and %d interactions, there are %d, %d, %d and %d', unit.no,
              unit.expected, unit.handed, unit.received, unit.rejected,
              count(item.item),
              count(item.item) FILTER (WHERE item.status <> 'pending'),
              count(item.item) FILTER (WHERE item.closed_at IS NOT NULL),
              count(item.item) FILTER (WHERE item.status IN ('failed', 'timed_out')))
  FROM units AS unit
  JOIN waits AS wait
    ON wait.run_id = unit.run_id
   AND wait.no = unit.no
   AND wait.status IN ('reserved', 'waiting', 'completed')
  LEFT JOIN interactions AS item
    ON item.run_id = unit.run_id
   AND item.no = unit.no
 GROUP BY unit.run_id, unit.no, unit.expected, unit.handed, unit.received, unit.rejected
HAVING unit.expected <> count(item.item)
    OR unit.handed <> count(item.item) FILTER (WHERE item.status <> 'pending')
    OR unit.received <> count(item.item) FILTER (WHERE item.closed_at IS NOT NULL)
    OR unit.rejected <> count(item.item) FILTER (WHERE item.status IN ('failed', 'timed_out'))
