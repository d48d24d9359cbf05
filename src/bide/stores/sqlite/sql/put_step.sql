INSERT OR REPLACE INTO steps (run_id, key, kind, status, seq, attempts, result, error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
