INSERT INTO {schema}.waits (
       workspace, run_id, no, key, kind, status, opened_at, names, seen, partial, deadline, on_timeout, due_at,
       closed_at, cause, expected, received, cancel_children, details)
SELECT workspace, run_id, no, key, kind, status, opened_at, names, seen, partial, deadline, on_timeout, due_at,
       closed_at, cause, expected, received, cancel_children, details
  FROM unnest($1::text::text[], $2::text::text[], $3::text::bigint[], $4::text::text[], $5::text::text[],
              $6::text::text[], $7::text::timestamptz[], $8::text::text[], $9::text::text[], $10::text::text[],
              $11::text::timestamptz[], $12::text::text[], $13::text::timestamptz[], $14::text::timestamptz[],
              $15::text::text[], $16::text::bigint[], $17::text::bigint[], $18::text::boolean[], $19::text::text[])
    AS new (workspace, run_id, no, key, kind, status, opened_at, names, seen, partial, deadline, on_timeout,
            due_at, closed_at, cause, expected, received, cancel_children, details)
