INSERT INTO {schema}.interactions (
       workspace, run_id, no, item, status, opened_at, definition, step, correlation_id, payload, transport,
       channel, assignee, "group", claimed_by, answers, answer, digest, answered_by, closed_at)
SELECT workspace, run_id, no, item, status, opened_at, definition, step, correlation_id, payload, transport,
       channel, assignee, "group", claimed_by, answers, answer, digest, answered_by, closed_at
  FROM unnest($1::text::text[], $2::text::text[], $3::text::bigint[], $4::text::bigint[], $5::text::text[],
              $6::text::timestamptz[], $7::text::text[], $8::text::text[], $9::text::text[], $10::text::text[],
              $11::text::text[], $12::text::text[], $13::text::text[], $14::text::text[], $15::text::text[],
              $16::text::text[], $17::text::text[], $18::text::text[], $19::text::text[],
              $20::text::timestamptz[])
    AS new (workspace, run_id, no, item, status, opened_at, definition, step, correlation_id, payload, transport,
            channel, assignee, "group", claimed_by, answers, answer, digest, answered_by, closed_at)
