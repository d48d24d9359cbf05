-- I5: a wait ends once.
SELECT ledger.run_id, format('its ledger tells of %d ends of wait %d', count(*), entry.value ->> '$.data.wait')
  FROM ledger
 CROSS JOIN json_each(ledger_json(ledger.run_id, ledger.seq, ledger.entries)) AS entry
 WHERE entry.value ->> 'name' IN ('await_unit_completed', 'await_unit_terminal')
 GROUP BY ledger.run_id, entry.value ->> '$.data.wait'
HAVING count(*) > 1
