-- I13: a join completes with its last child, not before and not later.
SELECT run_id, format('wait %s is %s with %s of %s', no, status, received, expected)
  FROM {schema}.waits
 WHERE kind = 'children'
   AND status IN ('waiting', 'completed')
   AND (status = 'completed') <> (received = expected)
