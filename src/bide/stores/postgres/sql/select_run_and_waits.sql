-- A run and its open waits, one row for each, in one snapshot and without a lock; which version of the row that is, and
-- the clock. Last comes the key that the delivery was sent with.
SELECT run.workspace, run.id, run.definition, run.version, run.style, run.status, run.step, run.state, run.input,
       run.created_at, run.updated_at, run.ready_at, run.ended_at, run.result, run.error, run.held, run.attempt,
       run.claims, run.epoch, run.commits, run.queue, run.priority, run.wait_no, run.parked_on, run.woken_by,
       run.open_waits, run.inbox_seq, run.inbox_count, run.correlation_key, run.correlation_scope, run.parent_id,
       run.parent_wait, run.child_no, run.has_children, run.cleanup_seconds, run.cancel_reason, run.cancel_until,
       run.retry_of, run.tags, run.ledger_seq, run.ledger_head, run.redact, run.trace,
       run.xmin::text, clock_timestamp(),
       wait.workspace, wait.run_id, wait.no, wait.key, wait.kind, wait.status, wait.opened_at, wait.names, wait.seen,
       wait.partial, wait.deadline, wait.on_timeout, wait.due_at, wait.closed_at, wait.cause, wait.expected,
       wait.received, wait.cancel_children, wait.details,
       CASE WHEN $2::text IS NOT NULL THEN
           (SELECT json_agg(json_build_array(hash, expires_at, revoked_at))
              FROM {schema}.keys
             WHERE hash = ANY ($2::text::text[]))::text
       END
  FROM {schema}.runs AS run
  LEFT JOIN {schema}.waits AS wait
    ON wait.run_id = run.id
   AND wait.no = ANY (translate(run.open_waits, '[]', '{}')::bigint[])
 WHERE run.id = $1
