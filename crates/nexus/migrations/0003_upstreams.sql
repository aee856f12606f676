-- What is known of upstream servers. `home` is the data folder of the hub that knows it: hubs that share a database
-- have servers of their own, also under the same name.

-- Tools as they were allowed. One that says something else of itself is held back.
CREATE TABLE upstream_tool (
    home       TEXT NOT NULL,
    server     TEXT NOT NULL,
    tool       TEXT NOT NULL,
    hash       TEXT NOT NULL,
    definition TEXT NOT NULL,
    allowed_ms BIGINT NOT NULL,
    PRIMARY KEY (home, server, tool)
);

-- Servers whose tools have been listed once, be it none. What they list later than that is not taken as it comes.
CREATE TABLE upstream_met (
    home   TEXT NOT NULL,
    server TEXT NOT NULL,
    PRIMARY KEY (home, server)
);

-- Which protocol a server was found to speak.
CREATE TABLE upstream_era (
    home   TEXT NOT NULL,
    server TEXT NOT NULL,
    era    TEXT NOT NULL,
    PRIMARY KEY (home, server)
);

-- Servers of project folders that somebody has agreed to. Another entry (`sha256`) is another question.
CREATE TABLE upstream_agreed (
    home      TEXT NOT NULL,
    file      TEXT NOT NULL,
    server    TEXT NOT NULL,
    sha256    TEXT NOT NULL,
    agreed_ms BIGINT NOT NULL,
    PRIMARY KEY (home, file, server)
);
