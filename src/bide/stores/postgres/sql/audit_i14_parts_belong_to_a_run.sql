-- I14: what a run is made of belongs to one that is there.
WITH belongs (run_id, what) AS (
    SELECT run_id, format('step %s', key) FROM {schema}.steps
     UNION ALL
    SELECT run_id, format('unit %s', no) FROM {schema}.units
     UNION ALL
    SELECT run_id, format('item %s of stream %s', item, section) FROM {schema}.items
)
SELECT belongs.run_id, format('%s belongs to no run', belongs.what)
  FROM belongs
  LEFT JOIN {schema}.runs ON runs.id = belongs.run_id
 WHERE runs.id IS NULL
