-- The oldest signals of one name in an inbox, so many at most; all where that is negative.
SELECT workspace, run_id, seq, id, name, payload, received_at
  FROM inbox
 WHERE run_id = ?1
   AND name = ?2
 ORDER BY seq
 LIMIT ?3
