-- A page of waits. Index: the primary key.
SELECT workspace, run_id, no, key, kind, status, opened_at, names, seen, partial, deadline, on_timeout, due_at,
       closed_at, cause, expected, received, cancel_children, details
  FROM {schema}.waits
 WHERE (run_id, no) > ($1, $2)
   AND ($3::text IS NULL OR workspace = $3)
   AND ($4::text IS NULL OR run_id = $4)
   AND ($5::text IS NULL OR status = $5)
   AND ($6::timestamptz IS NULL OR opened_at < $6)
   AND ($8::bigint IS NULL OR no = $8)
   AND ($9::text IS NULL OR kind = $9)
   AND ($10::text IS NULL OR (SELECT definition FROM {schema}.runs WHERE runs.id = waits.run_id) = $10)
   AND ($11::text IS NULL OR details::json ->> 'channel' = $11)
   AND ($12::text IS NULL OR details::json ->> 'assignee' = $12)
   AND ($13::text IS NULL OR details::json ->> 'group' = $13)
 ORDER BY run_id, no
 LIMIT $7
