-- Take chores that are due, for a time. Index: chores_by_due.
UPDATE chores
   SET due_at = :until,
       tries = tries + 1
 WHERE id IN (
           SELECT id
             FROM chores
            WHERE due_at <= :now
              AND kind <> 'cancel_children'
            ORDER BY due_at, id
            LIMIT :limit
       )
RETURNING id, run_id, kind, data, due_at, workspace, tries
