-- Items whose work is due, earliest first. Index: items_due.
SELECT items.run_id, items.section, items.item, items.status, items.stage, items.value, items.key, items.epoch, items.claims, items.attempts, items.due_at, items.error
  FROM {schema}.items
  JOIN {schema}.runs ON runs.id = items.run_id
 WHERE items.due_at <= coalesce($3, statement_timestamp()) -- null but in tests
   AND runs.queue = ANY ($1::text::text[])
   AND runs.definition = ANY ($2::text::text[])
 ORDER BY items.due_at
 LIMIT $4
