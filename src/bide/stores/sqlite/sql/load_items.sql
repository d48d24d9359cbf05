-- Some items of one stream. The parameter is a carray of their numbers; the join drives from it, one look-up for each.
SELECT items.run_id, items.section, items.item, items.status, items.stage, items.value, items.key, items.epoch,
       items.claims, items.attempts, items.due_at, items.error
  FROM carray(?3) AS wanted
 CROSS JOIN items
    ON items.run_id = ?1
   AND items.section = ?2
   AND items.item = wanted.value
