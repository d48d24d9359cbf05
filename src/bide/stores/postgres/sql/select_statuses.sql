-- One look-up for each id. With `id = ANY` a server that knows little of a table that has just filled reads all of it, and
-- compares each row with every id.
SELECT run.id, run.status
  FROM unnest($1::text::text[]) AS wanted (id)
 CROSS JOIN LATERAL (SELECT id, status
                       FROM {schema}.runs
                      WHERE runs.id = wanted.id
                      LIMIT 1) AS run
