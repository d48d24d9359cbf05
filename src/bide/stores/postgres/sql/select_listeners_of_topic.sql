-- The same for an event with too much in it to be asked for every equality.
SELECT listener.run_id, listener.no, listener.workspace, listener.topic, listener.eq,
       listener.pattern, listener.match, listener.channel
  FROM unnest($1::text::text[], $2::text::text[]) AS wanted (workspace, topic)
  JOIN {schema}.event_waits AS listener
    ON listener.workspace = wanted.workspace
   AND listener.topic = wanted.topic
