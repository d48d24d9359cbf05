INSERT INTO units (run_id, no, expected, handed, received, rejected, filled, dispatched)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (run_id, no) DO UPDATE
   SET expected = excluded.expected,
       handed = excluded.handed,
       received = excluded.received,
       rejected = excluded.rejected,
       filled = excluded.filled,
       dispatched = excluded.dispatched
