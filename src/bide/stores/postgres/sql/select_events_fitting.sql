-- The next events whose name begins like this. Walks the primary key.
SELECT workspace, seq, id, name, data, digest, channel, at, started, resumed
  FROM {schema}.events
 WHERE workspace = $1
   AND starts_with(name, $2)
   AND seq > $3
 ORDER BY seq
 LIMIT $4
