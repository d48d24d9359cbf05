-- I11: there is a timer for every moment at which a wait or a clean-up needs a look, and no other.
WITH expected (run_id, no, due_at) AS (
    SELECT run_id, no, due_at
      FROM waits
     WHERE status = 'waiting'
       AND due_at IS NOT NULL
     UNION ALL
    SELECT id, 0, cancel_until
      FROM runs
     WHERE cancel_until IS NOT NULL
)
SELECT coalesce(expected.run_id, timers.run_id),
       format('timer %d and what it stands for differ', coalesce(expected.no, timers.no))
  FROM expected
  FULL JOIN timers
    ON timers.run_id = expected.run_id
   AND timers.no = expected.no
 WHERE timers.due_at IS NOT expected.due_at
