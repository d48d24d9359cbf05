-- Take chores that are due, for a time. Index: chores_due. Rivals skip the rows that are locked.
UPDATE {schema}.chores
   SET due_at = coalesce($1, statement_timestamp()) + $2::interval, -- null but in tests
       tries = tries + 1
 WHERE id = ANY (ARRAY(
           SELECT id
             FROM {schema}.chores
            WHERE due_at <= coalesce($1, statement_timestamp())
              AND kind <> 'cancel_children'
            ORDER BY due_at, id
            LIMIT $3
              FOR UPDATE SKIP LOCKED
       ))
RETURNING id, run_id, kind, data, due_at, workspace, tries
