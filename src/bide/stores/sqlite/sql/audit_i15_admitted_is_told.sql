-- I15: what a dedup key stands for was admitted by the run that it is remembered with. Idempotency keys (once:) keep an
-- answer in place of a message id, and those of checkpoints keep none.
WITH
admitted (run_id, message_id) AS (
    SELECT run_id, name_text(workspace, kind, name, 'message_id', message_id)
      FROM names
     WHERE kind = 'dedup'
       AND run_id IS NOT NULL
       AND message_id <> ''
       AND name NOT LIKE 'once:%'
)
SELECT admitted.run_id, format('message %s is known as admitted, and its ledger does not tell of it', admitted.message_id)
  FROM admitted
 WHERE NOT EXISTS (SELECT 1
                     FROM ledger
                    CROSS JOIN json_each(ledger_json(ledger.run_id, ledger.seq, ledger.entries)) AS entry
                    WHERE ledger.run_id = admitted.run_id
                      AND entry.value ->> '$.data.id' = admitted.message_id)
