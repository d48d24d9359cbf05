INSERT INTO {schema}.dead_letters (workspace, id, run_id, kind, data, error, tries, at)
SELECT workspace, id, run_id, kind, data, error, tries, at
  FROM unnest($1::text::text[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[],
              $6::text::text[], $7::text::bigint[], $8::text::timestamptz[])
    AS new (workspace, id, run_id, kind, data, error, tries, at)
    ON CONFLICT (workspace, id) DO UPDATE
   SET error = excluded.error,
       tries = excluded.tries,
       at = excluded.at
