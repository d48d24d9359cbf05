-- I4: an event finds exactly the waits for events that are open.
SELECT run_id, format('waits for an event at %d, and no event would find it', no)
  FROM waits AS wait
 WHERE wait.kind = 'event'
   AND wait.status IN ('reserved', 'waiting')
   AND NOT EXISTS (SELECT 1
                     FROM event_waits AS listener
                    WHERE listener.run_id = wait.run_id
                      AND listener.no = wait.no)
 UNION ALL
SELECT run_id, format('an event would find wait %d, which is not open', no)
  FROM event_waits AS listener
 WHERE NOT EXISTS (SELECT 1
                     FROM waits AS wait
                    WHERE wait.run_id = listener.run_id
                      AND wait.no = listener.no
                      AND wait.kind = 'event'
                      AND wait.status IN ('reserved', 'waiting'))
