-- Where a look back begins. Index: events_by_age.
SELECT seq
  FROM events
 WHERE workspace = ?1
   AND at >= ?2
 ORDER BY at, seq
 LIMIT 1
