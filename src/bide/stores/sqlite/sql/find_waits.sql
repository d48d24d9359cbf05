-- Waits that a filter lets through, by run and number. Walks the primary key.
SELECT workspace, run_id, no, key, kind, status, opened_at, names, seen, partial, deadline, on_timeout, due_at,
       closed_at, cause, expected, received, cancel_children, details
  FROM waits
 WHERE (run_id, no) > (:after_run, :after_no)
   AND run_id >= coalesce(:run_id, '')
   AND run_id <= coalesce(:run_id, x'')     -- a blob is greater than any text, so this bounds nothing without a run
   AND (:workspace IS NULL OR workspace = :workspace)
   AND (:status IS NULL OR status = :status)
   AND (:opened_before IS NULL OR opened_at < :opened_before)
   AND (:no IS NULL OR no = :no)
   AND (:kind IS NULL OR kind = :kind)
   AND (:channel IS NULL OR details ->> '$.channel' = :channel)
   AND (:assignee IS NULL OR details ->> '$.assignee' = :assignee)
   AND (:group IS NULL OR details ->> '$.group' = :group)
   AND (:definition IS NULL OR (SELECT definition FROM runs WHERE id = waits.run_id) = :definition)
 ORDER BY run_id, no
 LIMIT :limit
