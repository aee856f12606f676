-- Tasks for agents. `home` is the data folder of the hub that keeps them: hubs that share a database have queues of
-- their own. A task is unfinished as long as it has no `completed_ms`.
CREATE TABLE task (
    home            TEXT NOT NULL,
    number          BIGINT NOT NULL,
    target          TEXT NOT NULL,
    content         TEXT NOT NULL,
    content_hash    BYTEA NOT NULL,
    priority        BIGINT NOT NULL,
    status          TEXT NOT NULL,
    sender          TEXT NOT NULL,
    idempotency_key TEXT,
    max_attempts    BIGINT NOT NULL,
    attempts        BIGINT NOT NULL,
    created_ms      BIGINT NOT NULL,
    deadline_ms     BIGINT,
    acknowledged_ms BIGINT,
    started_ms      BIGINT,
    completed_ms    BIGINT,
    -- Who works on it: the name of the claim, who made it, and until when it holds. What has no `lease_until_ms` is
    -- not taken away; `beats` tells a claimer who is heard all the time from one who is heard when it has something to say.
    claim           TEXT,
    claimed_by      TEXT,
    lease_ms        BIGINT,
    lease_until_ms  BIGINT,
    beats           BIGINT NOT NULL DEFAULT 0,
    -- The update with the question that waits for an answer.
    question        BIGINT,
    -- How it ended: what the agent said, with which exit code, or why it did not come to that.
    result          TEXT,
    exit_code       BIGINT,
    reason          TEXT,
    PRIMARY KEY (home, number)
);
-- The same words to the same target are one task until it is finished.
CREATE UNIQUE INDEX task_once ON task (home, target, content_hash) WHERE completed_ms IS NULL;
CREATE UNIQUE INDEX task_key ON task (home, sender, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX task_next ON task (home, target, priority DESC, number) WHERE status = 'pending';
-- Newest or oldest of a target and a status; the counts tell which of these there are.
CREATE INDEX task_listed ON task (home, target, status, number);
CREATE INDEX task_lease ON task (home, lease_until_ms) WHERE lease_until_ms IS NOT NULL;
CREATE INDEX task_deadline ON task (home, deadline_ms) WHERE deadline_ms IS NOT NULL AND completed_ms IS NULL;
-- A claimer may use a name again, once its task is finished.
CREATE INDEX task_claim ON task (home, claim, completed_ms) WHERE claim IS NOT NULL;
CREATE INDEX task_finished ON task (home, completed_ms) WHERE completed_ms IS NOT NULL;
-- What a key has, and what it had last.
CREATE INDEX task_holder ON task (home, target, claimed_by, completed_ms, number) WHERE claimed_by IS NOT NULL;

-- Keys of messages that were found to be there already, by their words. Those of all others stand at their tasks.
CREATE TABLE task_other_key (
    home            TEXT NOT NULL,
    sender          TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    task            BIGINT NOT NULL,
    PRIMARY KEY (home, sender, idempotency_key)
);
CREATE INDEX task_other_key_task ON task_other_key (home, task);

-- How many tasks there are of each kind, so that nobody has to count them.
CREATE TABLE task_count (
    home     TEXT NOT NULL,
    target   TEXT NOT NULL,
    status   TEXT NOT NULL,
    priority BIGINT NOT NULL,
    n        BIGINT NOT NULL,
    PRIMARY KEY (home, target, status, priority)
);

-- What agents said, in the order in which the hub heard it. What has a `source` is taken once. `peak_ms` is the latest
-- `created_ms` up to there: it never falls, whatever is done to the clock.
CREATE TABLE task_update (
    home       TEXT NOT NULL,
    seq        BIGINT NOT NULL,
    task       BIGINT,
    target     TEXT NOT NULL,
    kind       TEXT NOT NULL,
    content    TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    peak_ms    BIGINT NOT NULL,
    source     TEXT,
    PRIMARY KEY (home, seq)
);
CREATE UNIQUE INDEX task_update_source ON task_update (home, source) WHERE source IS NOT NULL;
CREATE INDEX task_update_task ON task_update (home, task, seq) WHERE task IS NOT NULL;
CREATE INDEX task_update_target ON task_update (home, target, seq);
CREATE INDEX task_update_time ON task_update (home, peak_ms, seq);
CREATE INDEX task_update_note ON task_update (home, created_ms) WHERE task IS NULL;

-- The last number of a task (`task`) and of an update (`update`).
CREATE TABLE agent_number (
    home TEXT NOT NULL,
    name TEXT NOT NULL,
    n    BIGINT NOT NULL,
    PRIMARY KEY (home, name)
);

-- How far each key has read the updates, for each choice of target and task (empty, 0: all).
CREATE TABLE bookmark (
    home      TEXT NOT NULL,
    principal TEXT NOT NULL,
    target    TEXT NOT NULL,
    task      BIGINT NOT NULL,
    seq       BIGINT NOT NULL,
    PRIMARY KEY (home, principal, target, task)
);
CREATE INDEX bookmark_task ON bookmark (home, task);

-- When a target's agent, or a channel like the Telegram bot, was last heard, and what is wrong with it.
CREATE TABLE channel (
    home     TEXT NOT NULL,
    name     TEXT NOT NULL,
    heard_ms BIGINT,
    trouble  TEXT,
    PRIMARY KEY (home, name)
);

-- Which message of a Telegram chat is about which task.
CREATE TABLE telegram_message (
    home    TEXT NOT NULL,
    chat    BIGINT NOT NULL,
    message BIGINT NOT NULL,
    task    BIGINT NOT NULL,
    -- The number of the question that it asks: a reply answers that one and no other.
    question BIGINT,
    PRIMARY KEY (home, chat, message)
);
CREATE INDEX telegram_message_task ON telegram_message (home, task);

-- A key that serves one target.
ALTER TABLE api_key ADD COLUMN target TEXT;
