SELECT item.workspace, item.run_id, item.no, item.item, item.status, item.opened_at, item.definition,
       item.step, item.correlation_id, item.payload, item.transport, item.channel, item.assignee, item."group",
       item.claimed_by, item.answers, item.answer, item.digest, item.answered_by, item.closed_at
  FROM unnest($1::text::text[], $2::text::bigint[], $3::text::bigint[]) AS wanted (run_id, no, item)
  JOIN {schema}.interactions AS item
    ON item.run_id = wanted.run_id
   AND item.no = wanted.no
   AND item.item = wanted.item
