-- In the order given, which is that of the key: two batches cannot wait for each other. A row that is missing from
-- the answer means that a rival took the name since it was looked up.
INSERT INTO {schema}.names (workspace, kind, name, run_id, digest, message_id, created_at)
SELECT workspace, kind, name, run_id, digest, message_id, created_at
  FROM unnest($1::text::text[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[],
              $6::text::text[], $7::text::timestamptz[])
       WITH ORDINALITY AS new (workspace, kind, name, run_id, digest, message_id, created_at, position)
 ORDER BY position
    ON CONFLICT (workspace, kind, name) DO NOTHING
RETURNING 1
