INSERT INTO {schema}.queue (
       run_id, queue, priority, due_at, epoch, worker)
SELECT run_id, queue, priority, due_at, epoch, worker
  FROM unnest($1::text::text[], $2::text::text[], $3::text::bigint[], $4::text::timestamptz[], $5::text::bigint[],
              $6::text::text[])
    AS new (run_id, queue, priority, due_at, epoch, worker)
    ON CONFLICT (run_id) DO UPDATE
   SET queue = excluded.queue,
       priority = excluded.priority,
       due_at = excluded.due_at,
       epoch = excluded.epoch,
       worker = excluded.worker
