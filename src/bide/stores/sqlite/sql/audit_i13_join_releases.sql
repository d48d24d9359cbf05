-- I13: a join completes with its last child, not before and not later.
SELECT run_id, format('wait %d is %s with %d of %d', no, status, received, expected)
  FROM waits
 WHERE kind = 'children'
   AND status IN ('waiting', 'completed')
   AND (status = 'completed') <> (received = expected)
