INSERT INTO {schema}.chores (id, run_id, kind, data, due_at, workspace, tries)
SELECT id, run_id, kind, data, due_at, workspace, tries
  FROM unnest($1::text::text[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::timestamptz[],
              $6::text::text[], $7::text::bigint[])
    AS new (id, run_id, kind, data, due_at, workspace, tries)
    ON CONFLICT (id) DO UPDATE
   SET data = excluded.data,
       due_at = excluded.due_at,
       tries = excluded.tries
