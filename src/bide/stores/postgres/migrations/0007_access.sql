-- Who may come in (G5). No foreign key to workspaces: the workspace `default` has no row.
CREATE TABLE {schema}.workspaces (
    created_at timestamptz NOT NULL,
    name       text COLLATE "C" NOT NULL,
    CONSTRAINT workspaces_pkey PRIMARY KEY (name)
);

CREATE TABLE {schema}.keys (
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz,
    last_used_at timestamptz,
    revoked_at   timestamptz,
    rate         bigint,
    id           text COLLATE "C" NOT NULL,
    workspace    text COLLATE "C" NOT NULL,
    hash         text COLLATE "C" NOT NULL,
    name         text NOT NULL,
    scopes       text NOT NULL,
    CONSTRAINT keys_pkey PRIMARY KEY (id),
    CONSTRAINT keys_hash UNIQUE (hash)
);
COMMENT ON COLUMN {schema}.keys.hash IS 'of the key, which is stored nowhere';

-- What resume tokens are signed with where nobody configured a secret (W4).
CREATE TABLE {schema}.secrets (
    created_at timestamptz NOT NULL,
    id         text COLLATE "C" NOT NULL,
    secret     text NOT NULL,
    CONSTRAINT secrets_pkey PRIMARY KEY (id)
);
