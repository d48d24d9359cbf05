-- A page of interactions with their waits. Index: the primary key.
SELECT item.workspace, item.run_id, item.no, item.item, item.status, item.opened_at, item.definition,
       item.step, item.correlation_id, item.payload, item.transport, item.channel, item.assignee, item."group",
       item.claimed_by, item.answers, item.answer, item.digest, item.answered_by, item.closed_at,
       wait.workspace, wait.run_id, wait.no, wait.key, wait.kind, wait.status, wait.opened_at, wait.names, wait.seen,
       wait.partial, wait.deadline, wait.on_timeout, wait.due_at, wait.closed_at, wait.cause, wait.expected,
       wait.received, wait.cancel_children, wait.details
  FROM {schema}.interactions AS item
  JOIN {schema}.waits AS wait ON wait.run_id = item.run_id AND wait.no = item.no
 WHERE (item.run_id, item.no, item.item) > ($1, $2, $3)
   AND ($4::text IS NULL OR item.workspace = $4)
   AND ($5::text IS NULL OR item.run_id = $5)
   AND ($6::bigint IS NULL OR item.no = $6)
   AND ($7::bigint IS NULL OR item.item = $7)
   AND ($8::text IS NULL OR item.definition = $8)
   AND ($9::text IS NULL OR item.channel = $9)
   AND ($10::text IS NULL OR item.assignee = $10)
   AND ($11::text IS NULL OR item."group" = $11)
   AND ($12::text::text[] IS NULL OR item.status = ANY ($12::text::text[]))
 ORDER BY item.run_id, item.no, item.item
 LIMIT $13
