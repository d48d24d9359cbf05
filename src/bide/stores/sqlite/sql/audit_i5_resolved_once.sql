-- I5: a wait that is closed says since when and why, and only such a wait.
SELECT run_id, format('wait %d is %s, yet its end or cause says otherwise', no, status)
  FROM waits
 WHERE (status IN ('reserved', 'waiting')) <> (closed_at IS NULL)
    OR (status IN ('reserved', 'waiting')) <> (cause IS NULL)
