-- Delete events that are too old to be looked back to. Index: events_by_time. Others who trim are passed by.
DELETE FROM {schema}.events AS event
 USING (SELECT workspace, seq
          FROM {schema}.events
         WHERE at < coalesce($1, statement_timestamp()) - $2::interval
         LIMIT $3
           FOR UPDATE SKIP LOCKED) AS gone
 WHERE event.workspace = gone.workspace
   AND event.seq = gone.seq
RETURNING event.seq
