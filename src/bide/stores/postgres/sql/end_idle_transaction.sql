-- End a transaction of ours whose COMMIT never arrived, instead of waiting for the server to miss its client. One that
-- is committing is left alone: it may be waiting for its replicas.
SELECT pg_terminate_backend(pid)
  FROM pg_stat_activity
 WHERE backend_xid = $1::text::xid8::xid
   AND state LIKE 'idle in transaction%'
