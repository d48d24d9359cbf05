-- The server process of a connection that broke, if it is still there. One that waits for a statement is ended, so that
-- none arrives late; one that is at work is left alone: it may be waiting for its replicas. Names are drawn by chance and
-- seen by all, so it is found under whatever role it logged in; what it does is seen by that role alone.
SELECT CASE WHEN state <> 'active' THEN pg_terminate_backend(pid) END
  FROM pg_stat_activity
 WHERE pid = $1
   AND application_name = $2
