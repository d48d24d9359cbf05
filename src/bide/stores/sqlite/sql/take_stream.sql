-- Set room for events aside on a workspace's stream; answers with the last number of it.
INSERT INTO streams (workspace, seq)
VALUES (?1, ?2)
    ON CONFLICT (workspace) DO UPDATE
   SET seq = seq + ?2
RETURNING seq
