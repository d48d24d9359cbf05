-- The parameters are the fields of `DeadLetter`, in order.
INSERT OR REPLACE INTO dead_letters (workspace, id, run_id, kind, data, error, tries, at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
