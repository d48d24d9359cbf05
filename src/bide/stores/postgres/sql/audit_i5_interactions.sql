-- I5: an interaction is open only while its wait is, and one that was answered has its answer with it.
SELECT concat_ws('/', item.run_id, item.no, item.item),
       format('is %s, its wait is %s', item.status, coalesce(wait.status, 'missing'))
  FROM {schema}.interactions AS item
  LEFT JOIN {schema}.waits AS wait ON wait.run_id = item.run_id AND wait.no = item.no
 WHERE wait.run_id IS NULL
    OR wait.workspace <> item.workspace
    OR (item.status IN ('pending', 'dispatching', 'waiting') AND wait.status NOT IN ('reserved', 'waiting'))
    OR (wait.status = 'completed' AND wait.received = 1 AND wait.expected = 1 AND item.status <> 'completed')
