UPDATE {schema}.interactions AS item
   SET status = new.status,
       assignee = new.assignee,
       "group" = new."group",
       claimed_by = new.claimed_by,
       answers = new.answers,
       answer = new.answer,
       digest = new.digest,
       answered_by = new.answered_by,
       closed_at = new.closed_at
  FROM unnest($1::text::text[], $2::text::bigint[], $3::text::bigint[], $4::text::text[], $5::text::text[],
              $6::text::text[], $7::text::text[], $8::text::text[], $9::text::text[], $10::text::text[],
              $11::text::text[], $12::text::timestamptz[])
    AS new (run_id, no, item, status, assignee, "group", claimed_by, answers, answer, digest, answered_by, closed_at)
 WHERE item.run_id = new.run_id
   AND item.no = new.no
   AND item.item = new.item
