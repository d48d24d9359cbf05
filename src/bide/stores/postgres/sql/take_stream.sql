-- Hold a workspace's stream until the end of the transaction and set room for events aside on it; answers with the last
-- number of it. Those who share the stream are waited for, and wait.
INSERT INTO {schema}.streams AS stream (workspace, seq)
VALUES ($1, $2)
    ON CONFLICT (workspace) DO UPDATE
   SET seq = stream.seq + $2
RETURNING seq
