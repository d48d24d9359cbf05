INSERT INTO {schema}.units (run_id, no, expected, handed, received, rejected, filled, dispatched)
SELECT run_id, no, expected, handed, received, rejected, filled, dispatched
  FROM unnest($1::text::text[], $2::text::bigint[], $3::text::bigint[], $4::text::bigint[], $5::text::bigint[],
              $6::text::bigint[], $7::text::boolean[], $8::text::boolean[])
    AS new (run_id, no, expected, handed, received, rejected, filled, dispatched)
    ON CONFLICT (run_id, no) DO UPDATE
   SET expected = excluded.expected,
       handed = excluded.handed,
       received = excluded.received,
       rejected = excluded.rejected,
       filled = excluded.filled,
       dispatched = excluded.dispatched
