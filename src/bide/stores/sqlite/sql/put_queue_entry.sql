-- Insert or replace a queue entry. The parameters are the fields of `QueueEntry`, in order.
INSERT INTO queue (
    run_id, queue, priority, due_at, epoch, worker
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT (run_id) DO UPDATE
   SET queue = excluded.queue,
       priority = excluded.priority,
       due_at = excluded.due_at,
       epoch = excluded.epoch,
       worker = excluded.worker
