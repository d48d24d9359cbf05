DELETE FROM {schema}.unused
 USING unnest($1::text::text[], $2::text::text[]) AS gone (workspace, id)
 WHERE unused.workspace = gone.workspace
   AND unused.id = gone.id
