-- The event of an id, if it came before.
SELECT workspace, seq, id, name, data, digest, channel, at, started, resumed
  FROM events
 WHERE workspace = ?1
   AND id = ?2
