-- Lock runs in id order, and say which version of its row each is. The clock of the last row was asked when all locks
-- were held.
SELECT locked.id, locked.version, clock_timestamp()
  FROM (SELECT id, xmin::text AS version
          FROM {schema}.runs
         WHERE id = ANY ($1::text::text[])
         ORDER BY id
           FOR NO KEY UPDATE) AS locked
