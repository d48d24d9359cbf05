-- Delete events that are too old to be looked back to. Index: events_by_time.
DELETE FROM events
 WHERE rowid IN (
           SELECT rowid
             FROM events
            WHERE at < :before
            ORDER BY at
            LIMIT :limit
       )
RETURNING seq
