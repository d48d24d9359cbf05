-- Index: the one of the ids.
SELECT command FROM intake WHERE id = ?
