-- I9: exactly the running runs have a worker in the queue.
SELECT runs.id, format('is %s, and its lease says otherwise', runs.status)
  FROM runs
  LEFT JOIN queue
    ON queue.run_id = runs.id
   AND queue.worker IS NOT NULL
 WHERE (runs.status = 'running') <> (queue.run_id IS NOT NULL)
