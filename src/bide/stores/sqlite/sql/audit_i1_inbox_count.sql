-- I1: a run counts exactly the signals in its inbox.
SELECT runs.id, format('says that %d signals are unread, %d are', runs.inbox_count, count(inbox.seq))
  FROM runs
  LEFT JOIN inbox ON inbox.run_id = runs.id
 GROUP BY runs.id
HAVING runs.inbox_count <> count(inbox.seq)
