-- Insert or replace a chore. The parameters are the fields of `Chore`, in order.
INSERT INTO chores (
    id, run_id, kind, data, due_at, workspace, tries
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT (id) DO UPDATE
   SET data = excluded.data,
       due_at = excluded.due_at,
       tries = excluded.tries
