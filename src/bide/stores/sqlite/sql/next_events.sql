-- The next events whose name begins like this. Walks the primary key.
SELECT workspace, seq, id, name, data, digest, channel, at, started, resumed
  FROM events
 WHERE workspace = ?1
   AND seq > ?2
   AND substr(name, 1, length(?4)) = ?4
 ORDER BY seq
 LIMIT ?3
