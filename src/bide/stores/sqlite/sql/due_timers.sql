-- Timers that are due, earliest first. Index: timers_by_due.
SELECT run_id, no
  FROM timers
 WHERE due_at <= :now
 ORDER BY due_at, run_id, no
 LIMIT :limit
