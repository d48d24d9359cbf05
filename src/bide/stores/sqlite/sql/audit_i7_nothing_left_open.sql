-- I7: nothing of a final run is open.
SELECT runs.id, format('is %s, yet something of it is open', runs.status)
  FROM runs
 WHERE runs.status IN ('completed', 'stopped', 'failed', 'cancelled')
   AND (
           EXISTS (SELECT 1 FROM waits WHERE waits.run_id = runs.id AND waits.status IN ('reserved', 'waiting'))
           OR EXISTS (SELECT 1 FROM queue WHERE queue.run_id = runs.id)
           OR EXISTS (SELECT 1 FROM timers WHERE timers.run_id = runs.id)
           OR EXISTS (SELECT 1 FROM inbox WHERE inbox.run_id = runs.id)
           OR runs.cancel_until IS NOT NULL
           OR runs.held IS NOT NULL
       )
