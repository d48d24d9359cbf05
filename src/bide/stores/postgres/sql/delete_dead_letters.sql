DELETE FROM {schema}.dead_letters AS letter
 USING unnest($1::text::text[], $2::text::text[]) AS gone (workspace, id)
 WHERE letter.workspace = gone.workspace
   AND letter.id = gone.id
