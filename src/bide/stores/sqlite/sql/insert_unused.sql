-- Keep what could not be used. The parameters are the fields of `Unused`, in order.
INSERT INTO unused (
    workspace, id, run_id, target, name, payload, reason, at
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (workspace, id) DO NOTHING  -- the same delivery, tried again
