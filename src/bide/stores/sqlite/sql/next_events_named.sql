-- The next events of one name. Index: events_by_name.
SELECT workspace, seq, id, name, data, digest, channel, at, started, resumed
  FROM events
 WHERE workspace = ?1
   AND name = ?4
   AND seq > ?2
 ORDER BY seq
 LIMIT ?3
