-- I7: only a run that was cancelled has all its children cancelled after its end.
SELECT run.id, format('is %s, yet its children are to be cancelled', run.status)
  FROM chores AS chore
  JOIN runs AS run
    ON run.id = chore.run_id
   AND run.status <> 'cancelled'
 WHERE chore.kind = 'cancel_children'
   AND chore.id = 'cancel_children:' || run.id
