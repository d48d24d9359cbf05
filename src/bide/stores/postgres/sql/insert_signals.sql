INSERT INTO {schema}.inbox (
       workspace, run_id, seq, id, name, payload, received_at)
SELECT workspace, run_id, seq, id, name, payload, received_at
  FROM unnest($1::text::text[], $2::text::text[], $3::text::bigint[], $4::text::text[], $5::text::text[],
              $6::text::text[], $7::text::timestamptz[])
    AS new (workspace, run_id, seq, id, name, payload, received_at)
