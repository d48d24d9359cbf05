-- Due waits and due timers of runs. Indexes: waits_due, timers_due. Rivals skip the rows that are locked.
SELECT due.run_id, due.no
  FROM (SELECT *
          FROM (SELECT run_id, no, due_at
                  FROM {schema}.waits
                 WHERE due_at <= coalesce($1, statement_timestamp()) -- null but in tests
                   AND status = 'waiting'
                 ORDER BY due_at
                 LIMIT $2
                   FOR UPDATE SKIP LOCKED) AS of_waits
         UNION ALL
        SELECT *
          FROM (SELECT run_id, no, due_at
                  FROM {schema}.timers
                 WHERE due_at <= coalesce($1, statement_timestamp())
                 ORDER BY due_at
                 LIMIT $2
                   FOR UPDATE SKIP LOCKED) AS of_runs) AS due
 ORDER BY due.due_at, due.run_id, due.no
 LIMIT $2
