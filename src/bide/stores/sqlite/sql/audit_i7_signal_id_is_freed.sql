-- I7: a signal id is taken by a wait that is open, and remembered with one that is closed.
WITH
taken (run_id, name, state, no) AS (
    SELECT run_id, name, name_text(workspace, kind, name, 'digest', digest),
           name_text(workspace, kind, name, 'message_id', message_id)
      FROM names
     WHERE kind = 'signal'
       AND run_id IS NOT NULL
)
SELECT taken.run_id, format('signal id %s is %s, wait %s is not', taken.name, taken.state, taken.no)
  FROM taken
  LEFT JOIN waits AS wait
    ON wait.run_id = taken.run_id
   AND cast(wait.no AS TEXT) = rtrim(taken.no, '!')
   AND (wait.status IN ('reserved', 'waiting')) = (taken.state <> 'closed')
 WHERE wait.run_id IS NULL
