-- The earliest moment at which anything is due, and the clock. Each queue and priority is one look into the index.
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
SELECT least(
           (SELECT min(due.due_at)
              FROM lanes
             CROSS JOIN LATERAL (SELECT due_at
                                   FROM {schema}.queue
                                  WHERE queue.queue = lanes.queue
                                    AND queue.priority = lanes.priority
                                  ORDER BY due_at
                                  LIMIT 1) AS due),
           (SELECT due_at FROM {schema}.waits WHERE due_at IS NOT NULL AND status = 'waiting' ORDER BY due_at LIMIT 1),
           (SELECT min(due_at) FROM {schema}.timers),
           (SELECT min(due_at) FROM {schema}.chores),
           (SELECT min(due_at) FROM {schema}.items),
           (SELECT timestamptz 'epoch' WHERE EXISTS (SELECT 1 FROM {schema}.intake)) -- long due
       ) AS due_at,
       clock_timestamp() AS now
