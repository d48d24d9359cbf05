-- Open waits that may want an event: by topic and by an equality that it satisfies. Index: event_waits_by_topic.
SELECT listener.run_id, listener.no, listener.workspace, listener.topic, listener.eq,
       listener.pattern, listener.match, listener.channel
  FROM unnest($1::text::text[], $2::text::text[], $3::text::text[]) AS wanted (workspace, topic, eq)
  JOIN {schema}.event_waits AS listener
    ON listener.workspace = wanted.workspace
   AND listener.topic = wanted.topic
   AND listener.eq = wanted.eq
