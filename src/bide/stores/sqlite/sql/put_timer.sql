-- Insert or move a timer. The parameters are the fields of `Timer`, in order.
INSERT INTO timers (
    run_id, no, due_at
)
VALUES (?1, ?2, ?3)
    ON CONFLICT (run_id, no) DO UPDATE
   SET due_at = excluded.due_at
