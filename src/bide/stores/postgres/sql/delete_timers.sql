DELETE FROM {schema}.timers
 USING unnest($1::text::text[], $2::text::bigint[]) AS gone (run_id, no)
 WHERE timers.run_id = gone.run_id
   AND timers.no = gone.no
