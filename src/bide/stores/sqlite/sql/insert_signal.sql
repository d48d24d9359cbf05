-- Put a signal into an inbox. The parameters are the fields of `Signal`, in order.
INSERT INTO inbox (
    workspace, run_id, seq, id, name, payload, received_at
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
