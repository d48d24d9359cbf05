-- What a commit sees of the keys that its commands were sent with. Index: keys_hash.
SELECT hash, expires_at, revoked_at
  FROM {schema}.keys
 WHERE hash = ANY ($1::text::text[])
