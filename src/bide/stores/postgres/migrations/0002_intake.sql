-- What callers' own transactions left for us (S11). Taken in about the order in which it was left: numbers may commit
-- out of order, and nothing rests on them.
CREATE TABLE {schema}.intake (
    seq     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id      text NOT NULL UNIQUE,
    command text NOT NULL
);
