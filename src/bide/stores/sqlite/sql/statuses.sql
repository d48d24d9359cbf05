-- The parameter is a carray of ids; the join drives from it, one look-up for each.
SELECT id, status
  FROM carray(?1) AS wanted
 CROSS JOIN runs ON runs.id = wanted.value
