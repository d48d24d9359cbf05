-- The waits that signal ids belong to, each with its run and the row of the id, in one snapshot and without a lock; which
-- version of the run's row that is, and the clock. An id that others collided with has a mark behind the number. Last
-- come the keys that the answers were sent with, once for all.
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
       names.workspace, names.kind, names.name, names.run_id, names.digest, names.message_id, names.created_at,
       CASE WHEN $3::text IS NOT NULL THEN
           (SELECT json_agg(json_build_array(hash, expires_at, revoked_at))
              FROM {schema}.keys
             WHERE hash = ANY ($3::text::text[]))::text
       END
  FROM unnest($1::text::text[], $2::text::text[]) AS answered (workspace, signal_id)
  JOIN {schema}.names
    ON names.workspace = answered.workspace
   AND names.kind = 'signal'
   AND names.name = answered.signal_id
   AND names.digest = 'open'
  JOIN {schema}.runs AS run
    ON run.id = names.run_id
  JOIN {schema}.waits AS wait
    ON wait.run_id = names.run_id
   AND wait.no = rtrim(names.message_id, '!')::bigint
