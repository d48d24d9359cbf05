DELETE FROM {schema}.chores WHERE id = ANY ($1::text::text[])
