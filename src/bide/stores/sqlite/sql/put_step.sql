INSERT INTO steps (run_id, key, kind, status, seq, attempts, result, error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (run_id, key) DO UPDATE
   SET kind = excluded.kind,
       status = excluded.status,
       seq = excluded.seq,
       attempts = excluded.attempts,
       result = excluded.result,
       error = excluded.error
