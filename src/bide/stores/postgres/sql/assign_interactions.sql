-- Give whatever of these waits is open to others. Index: the primary key.
UPDATE {schema}.interactions AS item
   SET assignee = new.assignee,
       "group" = new."group",
       claimed_by = NULL
  FROM unnest($1::text::text[], $2::text::bigint[], $3::text::text[], $4::text::text[])
    AS new (run_id, no, assignee, "group")
 WHERE item.run_id = new.run_id
   AND item.no = new.no
   AND item.status IN ('pending', 'dispatching', 'waiting')
