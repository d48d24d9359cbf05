-- I7: a run that has ended says when, and only such a run. The same of what goes with the other statuses: only a waiting
-- run is parked, only a ready one is held. And no count is below zero, nor are more signals unread than came.
SELECT id, format('is %s, and its row says otherwise', status)
  FROM {schema}.runs
 WHERE status NOT IN ('ready', 'running', 'waiting', 'completed', 'stopped', 'failed', 'cancelled')
    OR (status IN ('completed', 'stopped', 'failed', 'cancelled')) <> (ended_at IS NOT NULL)
    OR (status = 'waiting') <> (parked_on IS NOT NULL)
    OR (held IS NOT NULL AND status <> 'ready')
    OR (parent_id IS NULL) <> (parent_wait IS NULL)
    OR correlation_scope NOT IN ('live', 'forever')
    OR inbox_count NOT BETWEEN 0 AND inbox_seq
    OR least(attempt, claims, epoch, commits, wait_no) < 0
