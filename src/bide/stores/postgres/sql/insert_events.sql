INSERT INTO {schema}.events (workspace, seq, id, name, data, digest, channel, at, started, resumed)
SELECT workspace, seq, id, name, data, digest, channel, at, started, resumed
  FROM unnest($1::text::text[], $2::text::bigint[], $3::text::text[], $4::text::text[], $5::text::text[],
              $6::text::text[], $7::text::text[], $8::text::timestamptz[], $9::text::bigint[], $10::text::bigint[])
       AS new (workspace, seq, id, name, data, digest, channel, at, started, resumed)
