-- I4: a waiting run is parked on a wait of its own that is open.
SELECT runs.id, 'waits for nothing'
  FROM runs
  LEFT JOIN waits
    ON waits.run_id = runs.id
   AND waits.no = runs.parked_on
   AND waits.status = 'waiting'
 WHERE runs.status = 'waiting'
   AND waits.run_id IS NULL
