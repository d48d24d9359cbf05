-- A parent never changes, so this needs no lock. Runs without a parent are in the answer too: they exist.
SELECT id, parent_id FROM {schema}.runs WHERE id = ANY ($1::text::text[])
