SELECT names.workspace, names.name, names.run_id
  FROM unnest($1::text::text[], $2::text::text[]) AS wanted (workspace, name)
  JOIN {schema}.names
    ON names.workspace = wanted.workspace
   AND names.kind = 'correlation'
   AND names.name = wanted.name
