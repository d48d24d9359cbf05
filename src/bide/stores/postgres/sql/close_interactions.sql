-- End whatever of these waits is open. Index: the primary key.
UPDATE {schema}.interactions AS item
   SET status = ended.status,
       closed_at = ended.at
  FROM unnest($1::text::text[], $2::text::bigint[], $3::text::text[], $4::text::timestamptz[])
    AS ended (run_id, no, status, at)
 WHERE item.run_id = ended.run_id
   AND item.no = ended.no
   AND item.status IN ('pending', 'dispatching', 'waiting')
