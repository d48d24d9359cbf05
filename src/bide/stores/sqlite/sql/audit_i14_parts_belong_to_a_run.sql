-- I14: what a run is made of belongs to one that is there.
WITH belongs (run_id, what) AS (
    SELECT run_id, format('step %s', key) FROM steps
     UNION ALL
    SELECT run_id, format('unit %d', no) FROM units
     UNION ALL
    SELECT run_id, format('item %d of stream %d', item, section) FROM items
)
SELECT belongs.run_id, format('%s belongs to no run', belongs.what)
  FROM belongs
  LEFT JOIN runs ON runs.id = belongs.run_id
 WHERE runs.id IS NULL
