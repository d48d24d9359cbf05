-- The deadline and the details of a wait rarely change: those that do are written apart from the rest.
UPDATE {schema}.waits AS wait
   SET deadline = new.deadline,
       details = new.details
  FROM unnest($1::text::text[], $2::text::bigint[], $3::text::timestamptz[], $4::text::text[])
    AS new (run_id, no, deadline, details)
 WHERE wait.run_id = new.run_id
   AND wait.no = new.no
