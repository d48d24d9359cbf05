-- I7: a run ends once.
SELECT ledger.run_id, format('its ledger tells of %d ends', count(*))
  FROM ledger
 CROSS JOIN json_each(ledger_json(ledger.run_id, ledger.seq, ledger.entries)) AS entry
 WHERE entry.value ->> '$.data.to' IN ('completed', 'stopped', 'failed', 'cancelled')
 GROUP BY ledger.run_id
HAVING count(*) > 1
