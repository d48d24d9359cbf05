-- The parameters are the fields of `Interaction`, in order.
INSERT INTO interactions (
       workspace, run_id, no, item, status, opened_at, definition, step, correlation_id, payload, transport, channel, assignee,
       "group", claimed_by, answers, answer, digest, answered_by, closed_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)
