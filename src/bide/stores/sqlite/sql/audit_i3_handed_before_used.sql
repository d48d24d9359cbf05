-- I3: a step uses up only what it was handed: signals that came by the commit that began its turn, which is a page of
-- the ledger. The waits of a workflow take a signal as it comes, so of those it is asked only that it had come.
WITH
entry (run_id, page, seq, name, data) AS (
    SELECT ledger.run_id, ledger.seq, entry.value ->> 'seq', entry.value ->> 'name', entry.value -> 'data'
      FROM ledger
     CROSS JOIN json_each(ledger_json(ledger.run_id, ledger.seq, ledger.entries)) AS entry
),
told (run_id, seq, name, data, begun) AS (
    SELECT run_id, seq, name, data,
           max(CASE
                   WHEN data ->> 'epoch' IS NOT NULL
                     OR name IN ('step_committed', 'step_retried', 'await_resume_released')
                   THEN page
               END) OVER (PARTITION BY run_id ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
      FROM entry
),
came (run_id, signal_id, page, seq) AS (
    SELECT run_id, data ->> 'id', min(page), min(seq)
      FROM entry
     WHERE name = 'signal_received'
     GROUP BY run_id, data ->> 'id'
)
SELECT told.run_id,
       iif(came.seq IS NULL OR came.seq > told.seq,
           format('signal %s was used up before it came', used.value),
           format('signal %s was used up by a turn that it came after', used.value))
  FROM told
 CROSS JOIN json_each(told.data, '$.ids') AS used
  JOIN runs ON runs.id = told.run_id
  LEFT JOIN came
    ON came.run_id = told.run_id
   AND came.signal_id = used.value
 WHERE told.name = 'signals_consumed'
   AND (came.seq IS NULL OR came.seq > told.seq OR (runs.style = 'machine' AND came.page > coalesce(told.begun, 0)))
