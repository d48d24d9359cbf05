-- Insert a wait. The parameters are the fields of `Wait`, in order.
INSERT INTO waits (
    workspace, run_id, no, key, kind, status, opened_at, names, seen, partial, deadline, on_timeout, due_at,
    closed_at, cause, expected, received, cancel_children, details
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)
