SELECT letter.workspace, letter.id, letter.run_id, letter.kind, letter.data, letter.error, letter.tries, letter.at
  FROM unnest($1::text::text[], $2::text::text[]) AS wanted (workspace, id)
  JOIN {schema}.dead_letters AS letter
    ON letter.workspace = wanted.workspace
   AND letter.id = wanted.id
