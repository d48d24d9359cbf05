-- Interactions of a wait that wait for a transport, by item. Index: interactions_pending.
SELECT workspace, run_id, no, item, status, opened_at, definition, step, correlation_id, payload, transport, channel, assignee,
       "group", claimed_by, answers, answer, digest, answered_by, closed_at
  FROM {schema}.interactions
 WHERE run_id = $1
   AND no = $2
   AND status = 'pending'
 ORDER BY item
 LIMIT $3
