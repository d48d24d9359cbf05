SELECT status, count(*)
  FROM {schema}.runs
 WHERE $1::text IS NULL OR workspace = $1
 GROUP BY status
