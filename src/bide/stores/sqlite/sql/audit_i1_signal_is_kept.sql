-- I1, I18: every admitted signal is unread, or was used up once, or is listed as discarded at the end of its run.
-- One that was used up and returned was not used up.
WITH
entry (run_id, name, data) AS (
    SELECT ledger.run_id, entry.value ->> 'name', entry.value -> 'data'
      FROM ledger
     CROSS JOIN json_each(ledger_json(ledger.run_id, ledger.seq, ledger.entries)) AS entry
),
fate (run_id, signal_id, times) AS (
    SELECT run_id, id, 1
      FROM inbox
     UNION ALL
    SELECT entry.run_id, used.value, iif(entry.name = 'signals_consumed', 1, -1)
      FROM entry
     CROSS JOIN json_each(entry.data, '$.ids') AS used
     WHERE entry.name IN ('signals_consumed', 'signals_returned')
     UNION ALL
    SELECT entry.run_id, dropped.value, 1
      FROM entry
     CROSS JOIN json_each(entry.data, '$.discarded') AS dropped
),
counted (run_id, signal_id, fates) AS (
    SELECT run_id, signal_id, sum(times)
      FROM fate
     GROUP BY run_id, signal_id
)
SELECT entry.run_id,
       format('signal %s was admitted and is kept, used or discarded %d times', entry.data ->> 'id',
              coalesce(counted.fates, 0))
  FROM entry
  LEFT JOIN counted
    ON counted.run_id = entry.run_id
   AND counted.signal_id = entry.data ->> 'id'
 WHERE entry.name = 'signal_received'
   AND coalesce(counted.fates, 0) <> 1
