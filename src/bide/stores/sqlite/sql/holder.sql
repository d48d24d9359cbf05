-- The run that holds a correlation key.
SELECT workspace, name, run_id
  FROM names
 WHERE workspace = ?1
   AND kind = 'correlation'
   AND name = ?2
