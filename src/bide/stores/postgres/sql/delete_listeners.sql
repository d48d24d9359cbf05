-- Waits that are closed.
DELETE FROM {schema}.event_waits AS listener
 USING unnest($1::text::text[], $2::text::bigint[]) AS gone (run_id, no)
 WHERE listener.run_id = gone.run_id
   AND listener.no = gone.no
