-- A page of runs, each with its ledger, what it keeps in its inbox, and what the ledger has to agree with.
SELECT run.id, run.style, run.status, run.epoch, run.ledger_seq, encode(run.ledger_head, 'hex') AS ledger_head,
       run.redact, run.input, run.result, run.error,
       ARRAY(SELECT key FROM {schema}.steps WHERE steps.run_id = run.id AND steps.status = 'done' ORDER BY key) AS steps,
       ARRAY(SELECT result FROM {schema}.steps WHERE steps.run_id = run.id AND steps.status = 'done' ORDER BY key) AS results,
       ARRAY(SELECT id FROM {schema}.inbox WHERE inbox.run_id = run.id) AS unread,
       run.workspace, run.open_waits,
       ARRAY(SELECT ARRAY[kind, name, digest, message_id] FROM {schema}.names
              WHERE names.run_id = run.id AND names.message_id <> ''
                AND ((names.kind = 'dedup' AND names.name NOT LIKE 'once:%')
                     OR (names.kind = 'signal' AND names.message_id LIKE 'bide:sealed:%'))) AS names,
       ARRAY(SELECT seq FROM {schema}.ledger WHERE ledger.run_id = run.id ORDER BY seq) AS seqs,
       ARRAY(SELECT entries FROM {schema}.ledger WHERE ledger.run_id = run.id ORDER BY seq) AS pages
  FROM {schema}.runs AS run
 WHERE run.id > $1
 ORDER BY run.id
 LIMIT $2
