-- Of each run's signals of each name the oldest, so many at most; all where that is NULL.
SELECT found.workspace, found.run_id, found.seq, found.id, found.name, found.payload, found.received_at
  FROM unnest($1::text::text[], $2::text::text[]) AS wanted (run_id, name)
 CROSS JOIN LATERAL (
       SELECT inbox.workspace, inbox.run_id, inbox.seq, inbox.id, inbox.name, inbox.payload, inbox.received_at
         FROM {schema}.inbox
        WHERE inbox.run_id = wanted.run_id
          AND inbox.name = wanted.name
        ORDER BY inbox.seq
        LIMIT $3::bigint
       ) AS found
