-- Open waits that may want an event: by topic and by an equality that it satisfies. Index: event_waits_by_topic.
SELECT run_id, no, workspace, topic, eq, pattern, match, channel
  FROM event_waits
 WHERE workspace = ?1
   AND topic = ?2
   AND eq = ?3
