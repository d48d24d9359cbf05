-- I8: every claim has a greater epoch than the one before it, and none is ahead of its run.
WITH claims (run_id, epoch, before) AS (
    SELECT ledger.run_id,
           entry.value ->> '$.data.epoch',
           lag(entry.value ->> '$.data.epoch', 1, 0) OVER (PARTITION BY ledger.run_id ORDER BY entry.value ->> 'seq')
      FROM ledger
     CROSS JOIN json_each(ledger_json(ledger.run_id, ledger.seq, ledger.entries)) AS entry
     WHERE entry.value ->> '$.data.epoch' IS NOT NULL
)
SELECT claims.run_id, format('was claimed at epoch %d after %d', claims.epoch, claims.before)
  FROM claims
  JOIN runs ON runs.id = claims.run_id
 WHERE claims.epoch <= claims.before
    OR claims.epoch > runs.epoch
