-- Delete events that are too old to be looked back to. Index: events_by_time. Others who trim are passed by.
WITH gone AS MATERIALIZED ( -- chosen once: a join may read it again for each event, and would find others each time
    SELECT workspace, seq
      FROM {schema}.events
     WHERE at < coalesce($1, statement_timestamp()) - $2::interval
     LIMIT $3
       FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}.events AS event
 USING gone
 WHERE event.workspace = gone.workspace
   AND event.seq = gone.seq
RETURNING event.seq
