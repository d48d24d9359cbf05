-- Let events find open waits.
INSERT INTO {schema}.event_waits (run_id, no, workspace, topic, eq, pattern, match, channel)
SELECT run_id, no, workspace, topic, eq, pattern, match, channel
  FROM unnest($1::text::text[], $2::text::bigint[], $3::text::text[], $4::text::text[], $5::text::text[],
              $6::text::text[], $7::text::text[], $8::text::text[])
       AS new (run_id, no, workspace, topic, eq, pattern, match, channel)
