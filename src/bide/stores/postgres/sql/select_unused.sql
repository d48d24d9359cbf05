-- The newest, in the order they came. Index: unused_by_age.
SELECT workspace, id, run_id, target, name, payload, reason, at
  FROM (SELECT workspace, id, run_id, target, name, payload, reason, at
          FROM {schema}.unused
         WHERE workspace = $1
         ORDER BY at DESC, id DESC
         LIMIT $2) AS newest
 ORDER BY at, id
