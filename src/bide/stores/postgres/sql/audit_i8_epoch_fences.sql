-- I8: a queue entry carries the epoch of its run.
SELECT runs.id, format('is at epoch %s, its queue entry at %s', runs.epoch, queue.epoch)
  FROM {schema}.queue
  JOIN {schema}.runs ON runs.id = queue.run_id
 WHERE queue.epoch <> runs.epoch
