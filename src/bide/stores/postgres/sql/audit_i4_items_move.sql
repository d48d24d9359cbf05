-- I4: of the newest stream of a waiting run, what is ready has a worker who looks for it, and what waits has somebody who
-- was asked.
WITH
newest (run_id, section) AS (
    SELECT run_id, max(section)
      FROM {schema}.items
     GROUP BY run_id
),
live (run_id, item, status, due_at) AS (
    SELECT item.run_id, item.item, item.status, item.due_at
      FROM {schema}.items AS item
      JOIN newest ON newest.run_id = item.run_id AND newest.section = item.section
      JOIN {schema}.runs ON runs.id = item.run_id AND runs.status = 'waiting'
     WHERE item.status IN ('ready', 'waiting')
)
SELECT live.run_id, format('item %s is %s, and nothing would move it', live.item, live.status)
  FROM live
 WHERE (live.status = 'ready' AND live.due_at IS NULL)
    OR (live.status = 'waiting'
        AND NOT EXISTS (SELECT 1
                          FROM {schema}.interactions AS asked
                         WHERE asked.run_id = live.run_id
                           AND asked.item = live.item
                           AND asked.closed_at IS NULL))
