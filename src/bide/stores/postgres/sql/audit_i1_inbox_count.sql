-- I1: a run counts exactly the signals in its inbox.
SELECT runs.id, format('says that %s signals are unread, %s are', runs.inbox_count, count(inbox.seq))
  FROM {schema}.runs
  LEFT JOIN {schema}.inbox ON inbox.run_id = runs.id
 GROUP BY runs.id
HAVING runs.inbox_count <> count(inbox.seq)
