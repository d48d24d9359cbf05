-- I4: a waiting run has no signal that its open wait takes and that the parking step was not handed; of a pack, not
-- as many as it expects.
SELECT runs.id, format('waits at number %d for signal %s, which is in its inbox', waits.no, min(inbox.id))
  FROM runs
  JOIN waits
    ON waits.run_id = runs.id
   AND waits.status IN ('reserved', 'waiting')
   AND waits.kind IN ('signals', 'receive')
  JOIN inbox
    ON inbox.run_id = runs.id
   AND inbox.name IN (SELECT value FROM json_each(waits.names))
   AND inbox.seq NOT IN (SELECT value FROM json_each(waits.seen))
 WHERE runs.status = 'waiting'
 GROUP BY runs.id, waits.no, waits.expected
HAVING count(*) >= max(waits.expected, 1)
