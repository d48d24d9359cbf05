INSERT INTO {schema}.steps (run_id, key, kind, status, seq, attempts, result, error)
SELECT run_id, key, kind, status, seq, attempts, result, error
  FROM unnest($1::text::text[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::bigint[],
              $6::text::bigint[], $7::text::text[], $8::text::text[])
    AS new (run_id, key, kind, status, seq, attempts, result, error)
    ON CONFLICT (run_id, key) DO UPDATE
   SET kind = excluded.kind,
       status = excluded.status,
       seq = excluded.seq,
       attempts = excluded.attempts,
       result = excluded.result,
       error = excluded.error
