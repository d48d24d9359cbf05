-- I5: a run lists exactly its open waits.
WITH found (run_id, nos) AS (
    SELECT run_id, array_agg(no ORDER BY no)
      FROM {schema}.waits
     WHERE status IN ('reserved', 'waiting')
     GROUP BY run_id
)
SELECT runs.id, format('says that waits %s are open, %s are', runs.open_waits, coalesce(found.nos, '{}'))
  FROM {schema}.runs
  LEFT JOIN found ON found.run_id = runs.id
 WHERE coalesce(found.nos, '{}') <> ARRAY(
           SELECT json_array_elements_text(runs.open_waits::json)::integer AS no ORDER BY no
       )
