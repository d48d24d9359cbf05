-- I4: a waiting run has no signal that its open wait takes and that the parking step was not handed; of a pack, not
-- as many as it expects.
SELECT runs.id, format('waits at number %s for signal %s, which is in its inbox', waits.no, min(inbox.id))
  FROM {schema}.runs
  JOIN {schema}.waits
    ON waits.run_id = runs.id
   AND waits.status IN ('reserved', 'waiting')
   AND waits.kind IN ('signals', 'receive')
  JOIN {schema}.inbox
    ON inbox.run_id = runs.id
   AND inbox.name IN (SELECT json_array_elements_text(waits.names::json))
   AND inbox.seq NOT IN (SELECT json_array_elements_text(waits.seen::json)::bigint)
 WHERE runs.status = 'waiting'
 GROUP BY runs.id, waits.no, waits.expected
HAVING count(*) >= greatest(waits.expected, 1)
