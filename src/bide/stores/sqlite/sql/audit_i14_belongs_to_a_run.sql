-- I14: every row belongs to a run.
WITH belongs (run_id, what) AS (
    SELECT run_id, format('wait %d', no) FROM waits
     UNION ALL
    SELECT run_id, format('signal %s', id) FROM inbox
     UNION ALL
    SELECT run_id, format('%s name %s', kind, name) FROM names WHERE run_id IS NOT NULL
     UNION ALL
    SELECT run_id, 'queue entry' FROM queue
     UNION ALL
    SELECT run_id, format('timer %d', no) FROM timers
     UNION ALL
    SELECT run_id, format('ledger page %d', seq) FROM ledger
)
SELECT belongs.run_id, format('%s belongs to no run', belongs.what)
  FROM belongs
  LEFT JOIN runs ON runs.id = belongs.run_id
 WHERE runs.id IS NULL
