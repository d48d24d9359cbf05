-- Take a name. The parameters are the fields of `Name`, in order.
INSERT INTO names (
    workspace, kind, name, run_id, digest, message_id, created_at
)
VALUES (?1, ?2, ?3, nullif(?4, ''), ?5, ?6, ?7) -- no run: null, which no foreign key asks for
