INSERT INTO {schema}.items (run_id, section, item, status, stage, value, key, epoch, claims, attempts, due_at, error)
SELECT run_id, section, item, status, stage, value, key, epoch, claims, attempts, due_at, error
  FROM unnest($1::text::text[], $2::text::bigint[], $3::text::bigint[], $4::text::text[], $5::text::bigint[],
              $6::text::text[], $7::text::text[], $8::text::bigint[], $9::text::bigint[], $10::text::bigint[],
              $11::text::timestamptz[], $12::text::text[])
    AS new (run_id, section, item, status, stage, value, key, epoch, claims, attempts, due_at, error)
    ON CONFLICT (run_id, section, item) DO UPDATE
   SET status = excluded.status,
       stage = excluded.stage,
       value = excluded.value,
       key = excluded.key,
       epoch = excluded.epoch,
       claims = excluded.claims,
       attempts = excluded.attempts,
       due_at = excluded.due_at,
       error = excluded.error
