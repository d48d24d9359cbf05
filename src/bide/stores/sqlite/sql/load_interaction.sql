-- One interaction, by its wait and item.
SELECT workspace, run_id, no, item, status, opened_at, definition, step, correlation_id, payload, transport, channel,
       assignee, "group", claimed_by, answers, answer, digest, answered_by, closed_at
  FROM interactions
 WHERE run_id = ?1
   AND no = ?2
   AND item = ?3
