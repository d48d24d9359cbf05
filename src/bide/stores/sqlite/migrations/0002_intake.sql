-- What callers' own transactions left for us (S11). Taken in the order in which it was left.
CREATE TABLE intake (
    seq     INTEGER PRIMARY KEY,
    id      TEXT NOT NULL UNIQUE,
    command TEXT NOT NULL
) STRICT;
