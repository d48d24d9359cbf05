-- Delete runs that ended long ago; the rows of theirs go by their foreign keys. Index: runs_by_end.
DELETE FROM runs
 WHERE id IN (
           SELECT ended.id
             FROM runs AS ended
            WHERE ended.ended_at < :before
              AND NOT EXISTS (                -- a live parent is still to be handed this child's result
                      SELECT 1
                        FROM runs AS parent
                       WHERE parent.id = ended.parent_id
                         AND parent.ended_at IS NULL
                  )
            ORDER BY ended.ended_at
            LIMIT :limit
       )
RETURNING id
