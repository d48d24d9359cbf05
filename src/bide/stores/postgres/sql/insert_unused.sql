INSERT INTO {schema}.unused (workspace, id, run_id, target, name, payload, reason, at)
SELECT workspace, id, run_id, target, name, payload, reason, at
  FROM unnest($1::text::text[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[],
              $6::text::text[], $7::text::text[], $8::text::timestamptz[])
    AS new (workspace, id, run_id, target, name, payload, reason, at)
    ON CONFLICT (workspace, id) DO NOTHING -- the same delivery, tried again
