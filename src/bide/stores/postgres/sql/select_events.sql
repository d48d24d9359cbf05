-- Events by their ids.
SELECT event.workspace, event.seq, event.id, event.name, event.data, event.digest,
       event.channel, event.at, event.started, event.resumed
  FROM unnest($1::text::text[], $2::text::text[]) AS wanted (workspace, id)
  JOIN {schema}.events AS event
    ON event.workspace = wanted.workspace
   AND event.id = wanted.id
