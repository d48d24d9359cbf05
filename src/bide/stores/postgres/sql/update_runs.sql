-- the columns that may change; the others never do
UPDATE {schema}.runs AS run
   SET status = new.status,
       step = new.step,
       state = coalesce(new.state, run.state), -- null: as it was, so a big one is not written again
       updated_at = new.updated_at,
       ready_at = new.ready_at,
       ended_at = new.ended_at,
       result = new.result,
       error = new.error,
       held = new.held,
       attempt = new.attempt,
       claims = new.claims,
       epoch = new.epoch,
       commits = new.commits,
       wait_no = new.wait_no,
       parked_on = new.parked_on,
       woken_by = new.woken_by,
       open_waits = new.open_waits,
       inbox_seq = new.inbox_seq,
       inbox_count = new.inbox_count,
       has_children = new.has_children,
       cancel_reason = new.cancel_reason,
       cancel_until = new.cancel_until,
       ledger_seq = new.ledger_seq,
       ledger_head = new.ledger_head
  FROM unnest($1::text::text[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::timestamptz[],
              $6::text::timestamptz[], $7::text::timestamptz[], $8::text::text[], $9::text::text[], $10::text::text[],
              $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[], $15::text::bigint[],
              $16::text::bigint[], $17::text::bigint[], $18::text::text[], $19::text::bigint[], $20::text::bigint[],
              $21::text::boolean[], $22::text::text[], $23::text::timestamptz[], $24::text::bigint[],
              $25::text::bytea[])
    AS new (id, status, step, state, updated_at, ready_at, ended_at, result, error, held, attempt, claims,
            epoch, commits, wait_no, parked_on, woken_by, open_waits, inbox_seq, inbox_count, has_children,
            cancel_reason, cancel_until, ledger_seq, ledger_head)
 WHERE run.id = new.id
