-- I7: a correlation key is held by a live run that has it; a key for ever also by one that has ended.
SELECT names.name, format('correlation key is held by %s, which does not live', names.run_id)
  FROM names
  LEFT JOIN runs
    ON runs.id = names.run_id
   AND runs.correlation_key = names.name
   AND (runs.ended_at IS NULL OR runs.correlation_scope = 'forever')
 WHERE names.kind = 'correlation'
   AND runs.id IS NULL
