UPDATE {schema}.waits AS wait
   SET status = new.status,
       partial = new.partial,
       due_at = new.due_at,
       closed_at = new.closed_at,
       cause = new.cause,
       received = new.received
  FROM unnest($1::text::text[], $2::text::bigint[], $3::text::text[], $4::text::text[], $5::text::timestamptz[],
              $6::text::timestamptz[], $7::text::text[], $8::text::bigint[])
    AS new (run_id, no, status, partial, due_at, closed_at, cause, received)
 WHERE wait.run_id = new.run_id
   AND wait.no = new.no
