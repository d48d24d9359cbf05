DELETE FROM {schema}.steps
 USING unnest($1::text::text[], $2::text::text[]) AS gone (run_id, key)
 WHERE steps.run_id = gone.run_id
   AND steps.key = gone.key
