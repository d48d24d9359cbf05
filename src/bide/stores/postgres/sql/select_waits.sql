SELECT wait.workspace, wait.run_id, wait.no, wait.key, wait.kind, wait.status, wait.opened_at, wait.names, wait.seen,
       wait.partial, wait.deadline, wait.on_timeout, wait.due_at, wait.closed_at, wait.cause, wait.expected,
       wait.received, wait.cancel_children, wait.details
  FROM unnest($1::text::text[], $2::text::bigint[]) AS wanted (run_id, no)
  JOIN {schema}.waits AS wait
    ON wait.run_id = wanted.run_id
   AND wait.no = wanted.no
