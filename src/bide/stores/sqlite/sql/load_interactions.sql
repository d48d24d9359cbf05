-- Some interactions of one wait. The parameter is a carray of their items; the join drives from it, one look-up for each.
SELECT interactions.workspace, interactions.run_id, interactions.no, interactions.item, interactions.status,
       interactions.opened_at, interactions.definition, interactions.step, interactions.correlation_id,
       interactions.payload, interactions.transport, interactions.channel, interactions.assignee,
       interactions."group", interactions.claimed_by, interactions.answers, interactions.answer, interactions.digest,
       interactions.answered_by, interactions.closed_at
  FROM carray(?3) AS wanted
 CROSS JOIN interactions
    ON interactions.run_id = ?1
   AND interactions.no = ?2
   AND interactions.item = wanted.value
