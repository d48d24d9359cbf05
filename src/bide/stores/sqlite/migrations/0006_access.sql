-- Who may come in (G5). No foreign key to workspaces: the workspace `default` has no row.
CREATE TABLE workspaces (
    name       TEXT NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE keys (
    id           TEXT NOT NULL PRIMARY KEY,
    workspace    TEXT NOT NULL,
    hash         TEXT NOT NULL UNIQUE,      -- of the key, which is stored nowhere
    name         TEXT NOT NULL,
    scopes       TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER,
    revoked_at   INTEGER,
    rate         INTEGER
) STRICT;

-- What resume tokens are signed with where nobody configured a secret (W4).
CREATE TABLE secrets (
    id         TEXT NOT NULL PRIMARY KEY,
    secret     TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
