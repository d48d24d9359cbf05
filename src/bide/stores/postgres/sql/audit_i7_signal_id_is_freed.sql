-- I7: a signal id is taken by a wait that is open, and remembered with one that is closed. Those that are sealed are
-- looked at where they can be opened, in `audit.py`.
SELECT names.run_id, format('signal id %s is %s, wait %s is not', names.name, names.digest, names.message_id)
  FROM {schema}.names
  LEFT JOIN {schema}.waits AS wait
    ON wait.run_id = names.run_id
   AND wait.no::text = rtrim(names.message_id, '!')
   AND (wait.status IN ('reserved', 'waiting')) = (names.digest <> 'closed')
 WHERE names.kind = 'signal'
   AND names.run_id <> ''
   AND wait.run_id IS NULL
   AND names.message_id NOT LIKE 'bide:sealed:%'
