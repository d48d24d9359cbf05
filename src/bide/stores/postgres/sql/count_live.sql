-- What of a workspace is alive: runs, their open waits, signals in their inboxes. Index: runs_of_workspace.
SELECT 'runs', count(*)
  FROM {schema}.runs
 WHERE workspace = $1
   AND ended_at IS NULL
 UNION ALL
SELECT 'inbox', coalesce(sum(inbox_count), 0)::bigint
  FROM {schema}.runs
 WHERE workspace = $1
   AND ended_at IS NULL
 UNION ALL
SELECT 'waits', count(*)
  FROM {schema}.waits
 WHERE workspace = $1
   AND closed_at IS NULL
