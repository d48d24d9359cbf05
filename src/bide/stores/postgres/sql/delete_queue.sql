DELETE FROM {schema}.queue WHERE run_id = ANY ($1::text::text[])
