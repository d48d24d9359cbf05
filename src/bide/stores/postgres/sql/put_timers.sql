INSERT INTO {schema}.timers (
       run_id, no, due_at)
SELECT run_id, no, due_at
  FROM unnest($1::text::text[], $2::text::bigint[], $3::text::timestamptz[])
    AS new (run_id, no, due_at)
    ON CONFLICT (run_id, no) DO UPDATE
   SET due_at = excluded.due_at
