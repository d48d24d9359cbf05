-- I10: a run that was cancelled makes no progress any more.
WITH entry (run_id, seq, name) AS (
    SELECT ledger.run_id, entry.value ->> 'seq', entry.value ->> 'name'
      FROM ledger
     CROSS JOIN json_each(ledger_json(ledger.run_id, ledger.seq, ledger.entries)) AS entry
)
SELECT later.run_id, format('was cancelled, and its ledger goes on with %s', later.name)
  FROM entry AS cancelled
 CROSS JOIN entry AS later  -- in this order: few ledgers have a cancel, and all would be read again for each entry
 WHERE later.run_id = cancelled.run_id
   AND later.seq > cancelled.seq
   AND cancelled.name = 'run_cancelled'
   AND later.name IN ('run_claimed', 'step_committed', 'step_completed', 'step_failed', 'step_retried',
                      'run_suspended', 'signals_consumed', 'await_resume_released')
