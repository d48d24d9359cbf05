-- I11: there is a timer for the end of every clean-up, and no other. The timer of a wait is a column of it.
WITH expected (run_id, no, due_at) AS (
    SELECT id, 0, cancel_until
      FROM {schema}.runs
     WHERE cancel_until IS NOT NULL
)
SELECT coalesce(expected.run_id, timers.run_id),
       format('timer %s and what it stands for differ', coalesce(expected.no, timers.no))
  FROM expected
  FULL JOIN {schema}.timers
    ON timers.run_id = expected.run_id
   AND timers.no = expected.no
 WHERE timers.due_at IS DISTINCT FROM expected.due_at
