-- I8: a queue entry carries the epoch of its run.
SELECT runs.id, format('is at epoch %d, its queue entry at %d', runs.epoch, queue.epoch)
  FROM queue
  JOIN runs ON runs.id = queue.run_id
 WHERE queue.epoch <> runs.epoch
