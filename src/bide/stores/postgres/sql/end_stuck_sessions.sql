-- End sessions that have stood in the middle of a statement for so long, with all that their transactions lock.
-- The driver prepares a statement and executes it in two messages. A process that is stopped in between is at work in the
-- eyes of the server: neither statement_timeout nor idle_in_transaction_session_timeout ends it.
SELECT count(*) FILTER (WHERE pg_terminate_backend(pid))
  FROM pg_stat_activity
 WHERE datname = current_database()
   AND usename = session_user                       -- of others one may not, and need not
   AND application_name LIKE 'bide %'
   AND state = 'active'
   AND wait_event = 'ClientRead'
   AND state_change < clock_timestamp() - $1::interval
   AND query !~* '^\s*copy\M'                       -- of a program's own transaction: it reads from its client for long
