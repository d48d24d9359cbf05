-- Insert an event. The parameters are the fields of `EventRow`, in order.
INSERT INTO events (workspace, seq, id, name, data, digest, channel, at, started, resumed)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
