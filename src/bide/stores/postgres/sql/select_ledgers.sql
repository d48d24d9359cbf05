-- A page of runs, each with its ledger, what it keeps in its inbox, and what the ledger has to agree with.
SELECT run.id, run.status, run.epoch, run.ledger_seq, encode(run.ledger_head, 'hex') AS ledger_head,
       ARRAY(SELECT id FROM {schema}.inbox WHERE inbox.run_id = run.id) AS unread,
       ARRAY(SELECT seq FROM {schema}.ledger WHERE ledger.run_id = run.id ORDER BY seq) AS seqs,
       ARRAY(SELECT entries FROM {schema}.ledger WHERE ledger.run_id = run.id ORDER BY seq) AS pages
  FROM {schema}.runs AS run
 WHERE run.id > $1
 ORDER BY run.id
 LIMIT $2
