-- How far the stream of each workspace has come: events are numbered without repeats.
CREATE TABLE streams (
    workspace TEXT NOT NULL PRIMARY KEY,
    seq       INTEGER NOT NULL CHECK (seq >= 0)
) STRICT, WITHOUT ROWID;

-- Events, kept for those who look back, and to know a repeat by its id (F8).
CREATE TABLE events (
    workspace TEXT NOT NULL,
    seq       INTEGER NOT NULL CHECK (seq > 0),
    id        TEXT NOT NULL,
    name      TEXT NOT NULL,
    data      TEXT NOT NULL,
    digest    TEXT NOT NULL,
    channel   TEXT NOT NULL,
    at        INTEGER NOT NULL,
    started   INTEGER NOT NULL CHECK (started >= 0),
    resumed   INTEGER NOT NULL CHECK (resumed >= 0),
    PRIMARY KEY (workspace, seq),
    UNIQUE (workspace, id)
) STRICT;

-- next_events_named: the events of one name, in order.
CREATE INDEX events_by_name ON events (workspace, name, seq);
-- first_event_since: where a look back begins.
CREATE INDEX events_by_age ON events (workspace, at, seq);
-- trim_events: the oldest of all.
CREATE INDEX events_by_time ON events (at);

-- The open waits for events, where an event looks for them.
CREATE TABLE event_waits (
    run_id    TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    no        INTEGER NOT NULL CHECK (no > 0),
    workspace TEXT NOT NULL,
    topic     TEXT NOT NULL,
    eq        TEXT NOT NULL,
    pattern   TEXT NOT NULL,
    match     TEXT NOT NULL,
    channel   TEXT NOT NULL,
    PRIMARY KEY (run_id, no)
) STRICT, WITHOUT ROWID;

-- listeners: who may want an event.
CREATE INDEX event_waits_by_topic ON event_waits (workspace, topic, eq);
