-- I9: exactly the ready runs that are not held want a worker in the queue, in the place their row names.
SELECT runs.id, format('is %s, and the queue says otherwise', runs.status)
  FROM {schema}.runs
  LEFT JOIN {schema}.queue
    ON queue.run_id = runs.id
   AND queue.worker IS NULL
 WHERE (runs.status = 'ready' AND runs.held IS NULL) <> (queue.run_id IS NOT NULL)
    OR queue.queue <> runs.queue
    OR queue.priority <> runs.priority
    OR queue.due_at <> runs.ready_at
