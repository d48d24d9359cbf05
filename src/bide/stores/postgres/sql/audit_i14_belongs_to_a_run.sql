-- I14: every row belongs to a run.
WITH belongs (run_id, what) AS (
    SELECT run_id, format('wait %s', no) FROM {schema}.waits
     UNION ALL
    SELECT run_id, format('signal %s', id) FROM {schema}.inbox
     UNION ALL
    SELECT run_id, format('%s name %s', kind, name) FROM {schema}.names WHERE run_id <> ''
     UNION ALL
    SELECT run_id, 'queue entry' FROM {schema}.queue
     UNION ALL
    SELECT run_id, format('timer %s', no) FROM {schema}.timers
     UNION ALL
    SELECT run_id, format('ledger page %s', seq) FROM {schema}.ledger
)
SELECT belongs.run_id, format('%s belongs to no run', belongs.what)
  FROM belongs
  LEFT JOIN {schema}.runs ON runs.id = belongs.run_id
 WHERE runs.id IS NULL
