-- Index: the primary key.
SELECT items.run_id, items.section, items.item, items.status, items.stage, items.value, items.key, items.epoch, items.claims, items.attempts, items.due_at, items.error
  FROM {schema}.items
  JOIN unnest($1::text::text[], $2::text::bigint[], $3::text::bigint[]) AS wanted (run_id, section, item)
 USING (run_id, section, item)
