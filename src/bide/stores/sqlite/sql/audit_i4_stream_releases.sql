-- I4: a waiting pipeline has an item that is not at its end, or a question that is out.
SELECT runs.id, 'waits for items, and none is left'
  FROM runs
 WHERE runs.status = 'waiting'
   AND runs.style = 'pipeline'
   AND NOT EXISTS (SELECT 1
                     FROM items
                    WHERE items.run_id = runs.id
                      AND items.status IN ('ready', 'waiting', 'dead'))
   AND NOT EXISTS (SELECT 1
                     FROM interactions AS asked
                    WHERE asked.run_id = runs.id
                      AND asked.closed_at IS NULL)
