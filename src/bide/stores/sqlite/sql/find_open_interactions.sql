-- The same for open interactions of a workspace. Index: interactions_open.
SELECT item.workspace, item.run_id, item.no, item.item, item.status, item.opened_at, item.definition, item.step, item.correlation_id, item.payload,
       item.transport, item.channel, item.assignee, item."group", item.claimed_by, item.answers, item.answer, item.digest, item.answered_by, item.closed_at,
       wait.workspace, wait.run_id, wait.no, wait.key, wait.kind, wait.status, wait.opened_at, wait.names, wait.seen,
       wait.partial, wait.deadline, wait.on_timeout, wait.due_at, wait.closed_at, wait.cause, wait.expected, wait.received,
       wait.cancel_children, wait.details
  FROM interactions AS item
  JOIN waits AS wait ON wait.run_id = item.run_id AND wait.no = item.no
 WHERE item.workspace = :workspace
   AND item.closed_at IS NULL
   AND (item.run_id, item.no, item.item) > (:after_run, :after_no, :after_item)
   AND (:run_id IS NULL OR item.run_id = :run_id)
   AND item.status IN (SELECT value FROM json_each(:statuses))
   AND (:no IS NULL OR item.no = :no)
   AND (:item IS NULL OR item.item = :item)
   AND (:definition IS NULL OR item.definition = :definition)
   AND (:channel IS NULL OR item.channel = :channel)
   AND (:assignee IS NULL OR item.assignee = :assignee)
   AND (:group IS NULL OR item."group" = :group)
 ORDER BY item.run_id, item.no, item.item
 LIMIT :limit
