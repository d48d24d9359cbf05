-- The next events of one name. Index: events_by_name.
SELECT workspace, seq, id, name, data, digest, channel, at, started, resumed
  FROM {schema}.events
 WHERE workspace = $1
   AND name = $2
   AND seq > $3
 ORDER BY seq
 LIMIT $4
