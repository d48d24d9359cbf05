-- The earliest moment at which something of these queues, a timer, a chore or the intake is due.
-- Indexes: queue_by_due, timers_by_due, chores_by_due, items_by_due.
WITH RECURSIVE
wanted (queue) AS (
    SELECT value FROM json_each(:queues)
),
levels (queue, priority) AS (
    SELECT wanted.queue, (SELECT max(priority) FROM queue WHERE queue.queue = wanted.queue)
      FROM wanted
     UNION ALL
    SELECT levels.queue,
           (SELECT max(priority) FROM queue WHERE queue.queue = levels.queue AND queue.priority < levels.priority)
      FROM levels
     WHERE levels.priority IS NOT NULL
),
moments (due_at) AS (
    SELECT (SELECT min(due_at) FROM queue WHERE queue.queue = levels.queue AND queue.priority = levels.priority)
      FROM levels
     UNION ALL
    SELECT min(due_at) FROM timers
     UNION ALL
    SELECT min(due_at) FROM chores
     UNION ALL
    SELECT min(due_at) FROM items
     UNION ALL
    SELECT min(seq) * 0 FROM intake -- long due, if there is anything
)
SELECT min(due_at)
  FROM moments
