INSERT INTO items (run_id, section, item, status, stage, value, key, epoch, claims, attempts, due_at, error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
    ON CONFLICT (run_id, section, item) DO UPDATE
   SET status = excluded.status,
       stage = excluded.stage,
       value = excluded.value,
       key = excluded.key,
       epoch = excluded.epoch,
       claims = excluded.claims,
       attempts = excluded.attempts,
       due_at = excluded.due_at,
       error = excluded.error
