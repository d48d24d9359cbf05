-- What was left under an id, where it is not admitted yet. Index: the one of the ids.
SELECT command FROM {schema}.intake WHERE id = $1
