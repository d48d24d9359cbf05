-- The children that joins wait for. Index: runs_of_parent.
SELECT run.workspace, run.id, run.definition, run.version, run.style, run.status, run.step, run.state, run.input,
       run.created_at, run.updated_at, run.ready_at, run.ended_at, run.result, run.error, run.held, run.attempt,
       run.claims, run.epoch, run.commits, run.queue, run.priority, run.wait_no, run.parked_on, run.woken_by,
       run.open_waits, run.inbox_seq, run.inbox_count, run.correlation_key, run.correlation_scope,
       run.parent_id, run.parent_wait, run.child_no, run.has_children, run.cleanup_seconds, run.cancel_reason,
       run.cancel_until, run.retry_of, run.tags, run.ledger_seq, run.ledger_head, run.redact, run.trace
  FROM unnest($1::text::text[], $2::text::bigint[]) AS wanted (parent_id, parent_wait)
  JOIN {schema}.runs AS run
    ON run.parent_id = wanted.parent_id
   AND run.parent_wait = wanted.parent_wait
