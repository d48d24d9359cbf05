-- Items whose work is due, earliest first. Index: items_by_due.
SELECT items.run_id, items.section, items.item, items.status, items.stage, items.value, items.key, items.epoch, items.claims, items.attempts, items.due_at, items.error
  FROM items
  JOIN runs ON runs.id = items.run_id
 WHERE items.due_at <= :now
   AND runs.queue IN (SELECT value FROM json_each(:queues))
   AND runs.definition IN (SELECT value FROM json_each(:definitions))
 ORDER BY items.due_at
 LIMIT :limit
