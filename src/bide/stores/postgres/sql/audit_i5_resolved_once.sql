-- I5: a wait that is closed says since when and why, has come to no more than it wanted and is not looked for any more;
-- and only such a wait.
SELECT run_id, format('wait %s is %s, yet its end or cause says otherwise', no, status)
  FROM {schema}.waits
 WHERE status NOT IN ('reserved', 'waiting', 'completed', 'timed_out', 'failed', 'cancelled')
    OR (status IN ('reserved', 'waiting')) <> (closed_at IS NULL)
    OR (status IN ('reserved', 'waiting')) <> (cause IS NULL)
    OR (due_at IS NOT NULL AND closed_at IS NOT NULL)
    OR received NOT BETWEEN 0 AND expected
