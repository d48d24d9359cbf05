-- Delete kept arrivals that are too old, or too many in their workspace. The table is small: it is bounded by this.
DELETE FROM {schema}.unused
 USING (SELECT workspace, id
          FROM (SELECT workspace, id, at, target,
                       row_number() OVER (PARTITION BY workspace ORDER BY at DESC, id DESC) AS nth,
                       row_number() OVER (PARTITION BY workspace, target ORDER BY at DESC, id DESC) AS nth_of_target
                  FROM {schema}.unused) AS numbered
         WHERE at < coalesce($1, statement_timestamp()) - $2::interval
            OR nth > $3
            OR (nth_of_target > $5 AND target ~ '^(int|wait)_')
         ORDER BY at, id
         LIMIT $4) AS gone
 WHERE unused.workspace = gone.workspace
   AND unused.id = gone.id
RETURNING unused.id
