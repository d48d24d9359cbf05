-- Delete kept arrivals that are too old, or too many in their workspace. The table is small: it is bounded by this.
DELETE FROM unused
 WHERE (workspace, id) IN (
           SELECT workspace, id
             FROM (SELECT workspace, id, at, target,
                          row_number() OVER (PARTITION BY workspace ORDER BY at DESC, id DESC) AS nth,
                          row_number() OVER (PARTITION BY workspace, target ORDER BY at DESC, id DESC) AS nth_of_target
                     FROM unused)
            WHERE at < :before
               OR nth > :keep
               OR (nth_of_target > :keep_of_wait AND (target GLOB 'int_*' OR target GLOB 'wait_*'))
            ORDER BY at, id
            LIMIT :limit
       )
RETURNING id
