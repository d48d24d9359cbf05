-- I2: no two commits use up the same signal, unless the first gave it back.
SELECT ledger.run_id,
       format('signal %s was used up %d times', used.value,
              sum(iif(entry.value ->> 'name' = 'signals_consumed', 1, -1)))
  FROM ledger
 CROSS JOIN json_each(ledger_json(ledger.run_id, ledger.seq, ledger.entries)) AS entry
 CROSS JOIN json_each(entry.value, '$.data.ids') AS used
 WHERE entry.value ->> 'name' IN ('signals_consumed', 'signals_returned')
 GROUP BY ledger.run_id, used.value
HAVING sum(iif(entry.value ->> 'name' = 'signals_consumed', 1, -1)) > 1
