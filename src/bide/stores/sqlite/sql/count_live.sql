-- What of a workspace is alive: runs, their open waits, signals in their inboxes.
SELECT 'runs', count(*)
  FROM runs
 WHERE workspace = :workspace
   AND ended_at IS NULL
 UNION ALL
SELECT 'inbox', coalesce(sum(inbox_count), 0)
  FROM runs
 WHERE workspace = :workspace
   AND ended_at IS NULL
 UNION ALL
SELECT 'waits', count(*)
  FROM waits
 WHERE workspace = :workspace
   AND closed_at IS NULL
