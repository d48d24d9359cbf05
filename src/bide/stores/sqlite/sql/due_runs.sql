-- Runs that may be claimed, by priority, then due time, then id. Index: queue_by_due.
WITH RECURSIVE
wanted (queue) AS (
    SELECT value FROM json_each(:queues)
),
levels (queue, priority) AS (               -- the priorities in use, by one look-up for each
    SELECT wanted.queue, (SELECT max(priority) FROM queue WHERE queue.queue = wanted.queue)
      FROM wanted
     UNION ALL
    SELECT levels.queue,
           (SELECT max(priority) FROM queue WHERE queue.queue = levels.queue AND queue.priority < levels.priority)
      FROM levels
     WHERE levels.priority IS NOT NULL
)
SELECT entry.run_id, entry.worker
  FROM levels
 CROSS JOIN queue AS entry
    ON entry.run_id IN (                    -- limited for each priority: a long backlog is neither read nor sorted
           SELECT due.run_id
             FROM queue AS due
            WHERE due.queue = levels.queue
              AND due.priority = levels.priority
              AND due.due_at <= :now
            ORDER BY due.due_at, due.run_id
            LIMIT :limit
       )
 ORDER BY entry.priority DESC, entry.due_at, entry.run_id
 LIMIT :limit
