-- Runs that this transaction holds.
SELECT workspace, id, definition, version, style, status, step, state, input, created_at, updated_at, ready_at,
       ended_at, result, error, held, attempt, claims, epoch, commits, queue, priority, wait_no, parked_on,
       woken_by, open_waits, inbox_seq, inbox_count, correlation_key, correlation_scope, parent_id, parent_wait,
       child_no, has_children, cleanup_seconds, cancel_reason, cancel_until, retry_of, tags, ledger_seq,
       ledger_head, redact, trace
  FROM {schema}.runs
 WHERE id = ANY ($1::text::text[])
