DELETE FROM {schema}.intake WHERE id = ANY ($1::text::text[])
