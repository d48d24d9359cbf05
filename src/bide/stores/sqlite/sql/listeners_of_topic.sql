-- The same for an event with too much in it to be asked for every equality.
SELECT run_id, no, workspace, topic, eq, pattern, match, channel
  FROM event_waits
 WHERE workspace = ?1
   AND topic = ?2
