-- Index: the primary key.
SELECT units.run_id, units.no, units.expected, units.handed, units.received, units.rejected, units.filled, units.dispatched
  FROM {schema}.units
  JOIN unnest($1::text::text[], $2::text::bigint[]) AS wanted (run_id, no)
    ON units.run_id = wanted.run_id
   AND units.no = wanted.no
