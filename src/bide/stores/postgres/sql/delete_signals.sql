DELETE FROM {schema}.inbox
 USING unnest($1::text::text[], $2::text::bigint[]) AS gone (run_id, seq)
 WHERE inbox.run_id = gone.run_id
   AND inbox.seq = gone.seq
