-- Due rows of these queues, by priority, then due time. Index: queue_due, entered once for each queue and priority that
-- is there, so that neither a long backlog nor a million delayed runs are read. Rivals skip the rows that are locked.
WITH RECURSIVE lanes AS (
    SELECT first.queue, first.priority
      FROM unnest($1::text::text[]) AS wanted (queue)
     CROSS JOIN LATERAL (SELECT queue, priority
                           FROM {schema}.queue
                          WHERE queue.queue = wanted.queue
                          ORDER BY priority DESC
                          LIMIT 1) AS first
     UNION ALL
    SELECT next.queue, next.priority
      FROM lanes
     CROSS JOIN LATERAL (SELECT queue, priority
                           FROM {schema}.queue
                          WHERE queue.queue = lanes.queue
                            AND queue.priority < lanes.priority
                          ORDER BY priority DESC
                          LIMIT 1) AS next
)
SELECT due.run_id, due.worker IS NOT NULL AS is_expired
  FROM lanes
 CROSS JOIN LATERAL (SELECT run_id, worker, priority, due_at
                       FROM {schema}.queue
                      WHERE queue.queue = lanes.queue
                        AND queue.priority = lanes.priority
                        AND queue.due_at <= coalesce($2, statement_timestamp()) -- null but in tests
                      ORDER BY due_at, run_id
                      LIMIT $3
                        FOR UPDATE SKIP LOCKED) AS due
 ORDER BY due.priority DESC, due.due_at, due.run_id
 LIMIT $3
