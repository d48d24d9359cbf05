-- Let events find an open wait. The parameters are the fields of `Listener`, in order.
INSERT INTO event_waits (run_id, no, workspace, topic, eq, pattern, match, channel)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
