SELECT names.workspace, names.kind, names.name, names.run_id, names.digest, names.message_id, names.created_at
  FROM unnest($1::text::text[], $2::text::text[], $3::text::text[]) AS wanted (workspace, kind, name)
  JOIN {schema}.names
    ON names.workspace = wanted.workspace
   AND names.kind = wanted.kind
   AND names.name = wanted.name
