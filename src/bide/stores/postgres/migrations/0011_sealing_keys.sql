-- The ids of the keys that payloads are encrypted under, each with a text that only that key opens (G4).
CREATE TABLE {schema}.sealing_keys (
    id    text COLLATE "C" NOT NULL,
    proof text NOT NULL,
    CONSTRAINT sealing_keys_pkey PRIMARY KEY (id)
);
