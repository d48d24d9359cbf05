-- The parents of some runs. The parameter is a carray of ids.
SELECT DISTINCT runs.parent_id
  FROM carray(?1) AS wanted
 CROSS JOIN runs ON runs.id = wanted.value
 WHERE runs.parent_id IS NOT NULL
