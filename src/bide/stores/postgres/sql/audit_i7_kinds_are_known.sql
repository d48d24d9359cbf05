-- I7: every step came to something that a step can come to, and every name is of a kind that there is.
SELECT run_id, format('step %s is %s, and what a step can be says otherwise', key, status)
  FROM {schema}.steps
 WHERE status NOT IN ('done', 'failed', 'timed_out', 'trying')
 UNION ALL
SELECT run_id, format('name %s is a %s, and what a name can be says otherwise', name, kind)
  FROM {schema}.names
 WHERE kind NOT IN ('correlation', 'dedup', 'signal')
