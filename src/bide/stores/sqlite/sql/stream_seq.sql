-- How far a workspace's stream has come.
SELECT workspace, seq
  FROM streams
 WHERE workspace = ?1
