-- What was recorded before rows were chained stays where it can be read, under another name.
ALTER TABLE audit RENAME TO audit_unchained;

-- One chain of rows per running process. `home` is the data folder it ran on; the previous chain is the one that
-- was newest when it began. Up to `listed_*` its rows are in audit_place. What is pruned from its old end is vouched
-- for by a row (`pruned_by_*`).
CREATE TABLE chain (
    id              TEXT PRIMARY KEY,
    home            TEXT NOT NULL,
    started_ms      BIGINT NOT NULL,
    previous_id     TEXT NOT NULL,
    previous_seq    BIGINT NOT NULL,
    previous_hash   TEXT NOT NULL,
    head_seq        BIGINT NOT NULL,
    head_hash       TEXT NOT NULL,
    closed_ms       BIGINT,
    listed_seq      BIGINT NOT NULL DEFAULT 0,
    listed_pos      BIGINT NOT NULL DEFAULT 0,
    pruned_seq      BIGINT NOT NULL DEFAULT 0,
    pruned_hash     TEXT NOT NULL DEFAULT '',
    pruned_by_chain TEXT NOT NULL DEFAULT '',
    pruned_by_seq   BIGINT NOT NULL DEFAULT 0,
    shipped_seq     BIGINT NOT NULL DEFAULT 0,
    shipped_pos     BIGINT NOT NULL DEFAULT 0
);

-- The record. `pos` is in the order of writing over all processes; `body` is the whole row as JSON.
CREATE TABLE audit (
    pos     INTEGER PRIMARY KEY,
    body    TEXT NOT NULL
);

-- Where rows are found: one entry for rows written about the same time that share session, tool and outcome. `places`
-- are their positions, eight bytes each; `last` is the greatest. An index entry for each row would cost as much as the
-- row itself.
CREATE TABLE audit_place (
    last    INTEGER PRIMARY KEY,
    session TEXT NOT NULL,
    tool    TEXT NOT NULL,
    outcome TEXT NOT NULL,
    places  BYTEA NOT NULL
);
CREATE INDEX audit_place_tool ON audit_place (tool, outcome, last);
CREATE INDEX audit_place_session ON audit_place (session, tool, outcome, last);

-- Writes that have begun and not ended. What a dead process leaves here was abandoned.
CREATE TABLE begun (
    call_id TEXT PRIMARY KEY,
    chain   TEXT NOT NULL,
    pos     BIGINT NOT NULL
);

-- Rows that Loki will never take.
CREATE TABLE aside (
    pos     BIGINT PRIMARY KEY,
    at_ms   BIGINT NOT NULL,
    reason  TEXT NOT NULL
);

-- What the hub remembers of itself: digests of its configuration.
CREATE TABLE remembered (
    name    TEXT PRIMARY KEY,
    value   TEXT NOT NULL
);

ALTER TABLE api_key ADD COLUMN approved TEXT NOT NULL DEFAULT '';
ALTER TABLE api_key ADD COLUMN read_only BIGINT NOT NULL DEFAULT 0;
ALTER TABLE api_key ADD COLUMN session TEXT NOT NULL DEFAULT 'auto';

-- Levels that hold for a time, whatever the key's own is. The digest ties it to the key, not only to its name.
CREATE TABLE key_level (
    name     TEXT PRIMARY KEY,
    sha256   TEXT NOT NULL,
    level    TEXT NOT NULL,
    until_ms BIGINT NOT NULL
);
