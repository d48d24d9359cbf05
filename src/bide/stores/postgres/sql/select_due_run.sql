-- The runs that come first of those that are due, at most two, without a lock: their rows with the version and the
-- clock, the wait that woke each, whether a lease has ended, and the signal that is alone in the inbox.
WITH RECURSIVE lanes AS (
    SELECT first.queue, first.priority
      FROM unnest($1::text::text[]) AS wanted (queue)
     CROSS JOIN LATERAL (SELECT queue, priority
                           FROM {schema}.queue
                          WHERE queue.queue = wanted.queue
                          ORDER BY priority DESC
                          LIMIT 1) AS first
     UNION ALL
    SELECT next.queue, next.priority
      FROM lanes
     CROSS JOIN LATERAL (SELECT queue, priority
                           FROM {schema}.queue
                          WHERE queue.queue = lanes.queue
                            AND queue.priority < lanes.priority
                          ORDER BY priority DESC
                          LIMIT 1) AS next
), due AS (
    SELECT first.run_id, first.worker
      FROM lanes
     CROSS JOIN LATERAL (SELECT run_id, worker, priority, due_at
                           FROM {schema}.queue
                          WHERE queue.queue = lanes.queue
                            AND queue.priority = lanes.priority
                            AND queue.due_at <= coalesce($2, statement_timestamp()) -- null but in tests
                          ORDER BY due_at, run_id
                          LIMIT 2) AS first
     ORDER BY first.priority DESC, first.due_at, first.run_id
     LIMIT 2
)
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
       due.worker IS NOT NULL AS is_expired,
       signal.workspace, signal.run_id, signal.seq, signal.id, signal.name, signal.payload, signal.received_at
  FROM due
  JOIN {schema}.runs AS run
    ON run.id = due.run_id
  LEFT JOIN {schema}.waits AS wait
    ON wait.run_id = run.id
   AND wait.no = run.woken_by
  LEFT JOIN {schema}.inbox AS signal
    ON signal.run_id = run.id
   AND run.inbox_count = 1
