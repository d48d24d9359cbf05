-- Runs that ended before a moment and whose parent, if they have one, is over too. Index: runs_ended.
SELECT run.id
  FROM {schema}.runs AS run
 WHERE run.ended_at < coalesce($1, statement_timestamp()) - $2::interval
   AND NOT EXISTS (SELECT 1
                     FROM {schema}.runs AS parent
                    WHERE parent.id = run.parent_id
                      AND parent.ended_at IS NULL)
 LIMIT $3
   FOR UPDATE OF run SKIP LOCKED
