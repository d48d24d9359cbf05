-- Where a row is given, only that one: a rival may have put another in its place since it was read.
DELETE FROM {schema}.names
 USING unnest($1::text::text[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::timestamptz[])
    AS freed (workspace, kind, name, run_id, created_at)
 WHERE names.workspace = freed.workspace
   AND names.kind = freed.kind
   AND names.name = freed.name
   AND (freed.run_id IS NULL OR (names.run_id = freed.run_id AND names.created_at = freed.created_at))
