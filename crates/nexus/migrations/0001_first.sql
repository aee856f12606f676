-- Keys made with `nexus key new`. Only digests: a key is shown once and kept nowhere.
CREATE TABLE api_key (
    name        TEXT PRIMARY KEY,
    sha256      TEXT NOT NULL UNIQUE,
    level       TEXT NOT NULL,
    allow       TEXT NOT NULL,
    deny        TEXT NOT NULL,
    created_ms  BIGINT NOT NULL,
    expires_ms  BIGINT
);

-- The record. Rows are only ever added. The id is a UUIDv7, so it sorts by time.
CREATE TABLE audit (
    id          TEXT PRIMARY KEY,
    at_ms       BIGINT NOT NULL,
    event       TEXT NOT NULL,
    session     TEXT,
    principal   TEXT,
    transport   TEXT,
    era         TEXT,
    client      TEXT,
    call_id     TEXT,
    tool        TEXT,
    origin      TEXT,
    access      TEXT,
    node        TEXT,
    summary     TEXT,
    arguments   TEXT,
    digest      TEXT,
    decision    TEXT,
    how         TEXT,
    outcome     TEXT,
    duration_us BIGINT,
    detail      TEXT
);
