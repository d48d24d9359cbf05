INSERT INTO {schema}.runs (
       workspace, id, definition, version, style, status, step, state, input, created_at, updated_at, ready_at,
       ended_at, result, error, held, attempt, claims, epoch, commits, queue, priority, wait_no, parked_on,
       woken_by, open_waits, inbox_seq, inbox_count, correlation_key, correlation_scope, parent_id, parent_wait,
       child_no, has_children, cleanup_seconds, cancel_reason, cancel_until, retry_of, tags, ledger_seq,
       ledger_head, redact, trace)
SELECT workspace, id, definition, version, style, status, step, state, input, created_at, updated_at, ready_at,
       ended_at, result, error, held, attempt, claims, epoch, commits, queue, priority, wait_no, parked_on,
       woken_by, open_waits, inbox_seq, inbox_count, correlation_key, correlation_scope, parent_id, parent_wait,
       child_no, has_children, cleanup_seconds, cancel_reason, cancel_until, retry_of, tags, ledger_seq,
       ledger_head, redact, trace
  FROM unnest($1::text::text[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[],
              $6::text::text[], $7::text::text[], $8::text::text[], $9::text::text[], $10::text::timestamptz[],
              $11::text::timestamptz[], $12::text::timestamptz[], $13::text::timestamptz[], $14::text::text[],
              $15::text::text[], $16::text::text[], $17::text::bigint[], $18::text::bigint[], $19::text::bigint[],
              $20::text::bigint[], $21::text::text[], $22::text::bigint[], $23::text::bigint[], $24::text::bigint[],
              $25::text::bigint[], $26::text::text[], $27::text::bigint[], $28::text::bigint[], $29::text::text[],
              $30::text::text[], $31::text::text[], $32::text::bigint[], $33::text::bigint[], $34::text::boolean[],
              $35::text::double precision[], $36::text::text[], $37::text::timestamptz[], $38::text::text[],
              $39::text::text[], $40::text::bigint[], $41::text::bytea[],
              $42::text::text[], $43::text::text[])
    AS new (workspace, id, definition, version, style, status, step, state, input, created_at, updated_at,
            ready_at, ended_at, result, error, held, attempt, claims, epoch, commits, queue, priority, wait_no,
            parked_on, woken_by, open_waits, inbox_seq, inbox_count, correlation_key, correlation_scope,
            parent_id, parent_wait, child_no, has_children, cleanup_seconds, cancel_reason, cancel_until,
            retry_of, tags, ledger_seq, ledger_head, redact, trace)
