SELECT id, status FROM {schema}.runs WHERE id = ANY ($1::text::text[])
