-- In the order of the key, as they are inserted. Only the rows that were read: one that is missing from the answer means
-- that a rival has changed it since. No index is on what changes while the run stays the same.
UPDATE {schema}.names
   SET run_id = new.run_id,
       digest = new.digest,
       message_id = new.message_id,
       created_at = new.created_at
  FROM unnest($1::text::text[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[],
              $6::text::text[], $7::text::timestamptz[], $8::text::text[], $9::text::timestamptz[])
    AS new (workspace, kind, name, run_id, digest, message_id, created_at, known_run_id, known_created_at)
 WHERE names.workspace = new.workspace
   AND names.kind = new.kind
   AND names.name = new.name
   AND names.run_id = new.known_run_id
   AND names.created_at = new.known_created_at
RETURNING 1
