//! Every key of `nexus.yaml`: name, type, default and the line that the reference page shows.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::{NonZeroU16, NonZeroU32, NonZeroUsize};

use nexus_core::name::NodeName;
use nexus_core::principal::{Level, SessionPolicy};

use super::section::section;
use super::values::measure::{Period, Size};
use super::values::net::{DockerHost, HostPort, HttpUrl, IpNet, Origin, Reachable, SshTarget};
use super::values::remote::{BranchPrefix, GitRemote, PostgresUrl, ZoneId};
use super::values::{
    ApprovalMode, EnvName, Expiry, FilePath, KeyName, LabelName, LogLevel, Program, Protocol, Sha256, TargetName, Text,
    ToolPatterns,
};

section! {
    /// The whole file. Every section may be left out.
    File {
        /// The MCP listener.
        server: Server,
        /// Named keys beside `MCP_API_KEY`. `nexus key new` makes further ones without this file.
        keys: Vec<Key>,
        /// Who says yes to a write.
        approval: Approval,
        /// Where everything is kept. Left out: SQLite in the data folder.
        store: Option<PostgresUrl>,
        /// The record of all that happened.
        audit: Audit,
        /// How the record looks in Loki; `LOKI_URL` switches it on.
        loki: Loki,
        /// Commands, files and environment.
        shell: Shell,
        /// What the lab consists of.
        topology: Topology,
        /// Further machines, by name. The local one is always there.
        nodes: BTreeMap<NodeName, NodeAccess>,
        /// Containers and stacks.
        docker: Docker,
        /// Playbooks; left out, the Ansible tools say what to configure.
        ansible: Option<Ansible>,
        /// Upstream MCP servers.
        mcp: Mcp,
        /// Resident agents and how tasks reach them.
        agents: Agents,
        /// Computers that dial in.
        links: Links,
        /// Other services.
        integrations: Integrations,
    }
}

section! {
    /// The MCP listener.
    Server {
        /// Address to listen on. Beyond loopback a key must be configured. `MCP_HOST` beats it.
        http_host: IpAddr = "127.0.0.1",
        /// Port to listen on; 0 takes any free one. `MCP_PORT` beats it.
        http_port: u16 = "8765",
        /// Address under which clients reach the hub, when a proxy stands before it.
        public_url: Option<HttpUrl>,
        /// Further `Host` names that requests may carry, beside loopback and `public_url`.
        allowed_hosts: Vec<HostPort>,
        /// Origins of web pages that may call the hub.
        allowed_origins: Vec<Origin>,
        /// Proxies whose `X-Forwarded-For` is believed.
        trusted_proxies: Vec<IpNet>,
        /// How much is logged. `NEXUS_LOG` beats it.
        log_level: LogLevel = "info",
        /// Eras of MCP that are spoken: both, only up to 2025-11-25, or only from 2026-07-28.
        protocol: Protocol = "dual",
        /// Refuses every write, whatever a key may do.
        read_only: bool = "false",
        /// Requests that one key may send.
        rate_limit: RateLimit,
        /// What one hub holds at a time.
        limits: Limits,
    }
}

section! {
    /// Requests that one key may send.
    RateLimit {
        /// Sustained requests per second.
        per_second: NonZeroU32 = "100",
        /// Requests at once after a pause.
        burst: NonZeroU32 = "500",
    }
}

section! {
    /// What one hub holds at a time.
    Limits {
        /// Open sessions.
        sessions: NonZeroUsize = "10000",
        /// Calls in flight in one session.
        calls_per_session: NonZeroUsize = "64",
        /// A session without any activity ends after this.
        session_idle: Period = "24h",
        /// A lease (clients of 2026-07-28, which have no session) ends after this.
        lease_idle: Period = "30m",
    }
}

section! {
    /// One key.
    Key {
        /// Name in the record; `default` is the key in `MCP_API_KEY`.
        name: KeyName,
        /// SHA-256 of the key. The key itself does not belong in a file.
        sha256: Sha256,
        /// How far it is trusted.
        level: Level = "trusted",
        /// Tools that it sees. `*` stands for any characters.
        allow: ToolPatterns = "['*']",
        /// Tools that it does not see, even when allowed.
        deny: ToolPatterns,
        /// Writes that need no approval with this key.
        approved: ToolPatterns,
        /// Refuses every write.
        read_only: bool = "false",
        /// Makes it an agent's key, good only for this target's tasks.
        target: Option<TargetName>,
        /// `lease` gathers all of its calls into one session.
        session: SessionPolicy = "auto",
        /// No longer good from then on; a date alone is good until its end, UTC.
        expires: Option<Expiry>,
    }
}

section! {
    /// Who says yes to a write.
    Approval {
        /// `ask` asks the human through the client, `chat` lets the model ask, `operator` accepts only `nexus approve` and the Telegram bot's buttons.
        mode: ApprovalMode = "ask",
        /// Tools that ask every time, also in an approved session.
        always_ask: ToolPatterns,
    }
}

section! {
    /// The record of all that happened.
    Audit {
        /// Rows older than this are removed.
        keep: Period = "365d",
        /// The oldest rows are removed beyond this.
        max_size: Size = "10GB",
        /// Tools whose output a model sees unredacted.
        unredacted_tools: ToolPatterns,
    }
}

section! {
    /// How the record looks in Loki.
    Loki {
        /// Labels of the stream.
        audit_labels: BTreeMap<LabelName, Text> = "{ job: mcp-audit, env: homelab }",
        /// Tenant (`X-Scope-OrgID`).
        tenant: Option<Text>,
    }
}

section! {
    /// Commands, files and environment.
    Shell {
        /// Shell that `run_command` runs its line with.
        program: Program = "/bin/sh",
        /// Characters of output that a reply holds; the rest is read with `read_output`.
        output_cap: NonZeroUsize = "50000",
        /// Paths that `read_file` refuses, beside private keys and the like. `*` stands for any characters.
        secret_paths: Vec<Text>,
        /// Variables whose values `get_env` shows; of all others it shows the names.
        readable_env: Vec<EnvName> = "[PATH, LANG, TZ]",
    }
}

section! {
    /// What the lab consists of.
    Topology {
        /// File that describes the lab.
        static_file: Option<FilePath>,
        /// Minutes between looks at what runs.
        refresh_interval_minutes: NonZeroU32 = "60",
    }
}

section! {
    /// How a node is reached.
    NodeAccess {
        /// User and host.
        ssh: SshTarget,
        /// Port of its ssh server.
        port: NonZeroU16 = "22",
        /// Host to go through.
        jump: Option<SshTarget>,
        /// Private key file. Left out: what ssh finds by itself.
        key: Option<FilePath>,
    }
}

section! {
    /// Containers and stacks.
    Docker {
        /// Folder with one folder per stack.
        compose_dir: Option<FilePath>,
        /// Docker engines of other nodes.
        remote_contexts: BTreeMap<NodeName, DockerHost>,
    }
}

section! {
    /// Where the playbooks come from.
    Ansible {
        /// Git remote of the playbook repository.
        repo_url: GitRemote,
        /// Folder of the working copy. Left out: `playbooks` in the data folder.
        local_path: Option<FilePath>,
        /// Private key for the remote and the machines. Left out: what ssh finds by itself.
        ssh_key_path: Option<FilePath>,
        /// Branches for drafts start with this.
        review_branch_prefix: BranchPrefix = "mcp-draft/",
    }
}

section! {
    /// Upstream MCP servers.
    Mcp {
        /// Private addresses beside localhost that upstream servers may have.
        allow_private: Vec<Reachable>,
        /// Further `mcp.json` files.
        files: Vec<FilePath>,
    }
}

section! {
    /// Resident agents and how tasks reach them.
    Agents {
        /// Target of a message that names none.
        default: Option<TargetName>,
        /// Queues by name.
        targets: BTreeMap<TargetName, Target>,
        /// The Telegram bot; `TELEGRAM_BOT_TOKEN` switches it on.
        telegram: Telegram,
        /// Finished tasks and their updates are removed after this.
        keep: Period = "365d",
    }
}

section! {
    /// One agent's queue, reached in exactly one way.
    Target {
        /// Served by `nexus agent`, or by an agent with its own key.
        worker: Option<Worker>,
        /// Served by whoever reads a Telegram chat.
        telegram: Option<TelegramChat>,
        /// Served by a program that tasks are posted to.
        webhook: Option<Webhook>,
        /// What the agent is for; models read it.
        description: Option<Text>,
        /// Times that a task may be started.
        max_attempts: NonZeroU32 = "1",
        /// A task of a worker's target whose agent says nothing for this long is taken from it. `nexus agent` is heard all the time.
        lease: Period = "1h",
        /// A task that is not finished within this is given up. Left out: never.
        deadline: Option<Period>,
    }
}

section! {
    /// Served by `nexus agent`; nothing to set.
    Worker {}
}

section! {
    /// A program that tasks are posted to, signed.
    Webhook {
        /// Where they are posted.
        url: HttpUrl,
        /// File with the secret that both sides sign with. Left out: `NEXUS_WEBHOOK_SECRET`.
        secret_file: Option<FilePath>,
    }
}

section! {
    /// A Telegram chat.
    TelegramChat {
        /// Number of the chat; groups are negative. Left out: the one in the credentials file.
        chat_id: Option<i64>,
        /// Number of the topic, where the chat is a forum.
        topic: Option<i64>,
    }
}

section! {
    /// The Telegram bot.
    Telegram {
        /// Address of the Bot API.
        api_url: HttpUrl = "https://api.telegram.org",
        /// File with `token=` and `chat_id=` lines, instead of `TELEGRAM_BOT_TOKEN`.
        credentials_file: Option<FilePath>,
        /// Numbers of users who are believed. Without one, nobody is.
        allowed_users: Vec<i64>,
        /// Numbers of chats that are listened to.
        allowed_chats: Vec<i64>,
    }
}

section! {
    /// Computers that dial in.
    Links {
        /// Whether the hub listens for computers at all.
        enabled: bool = "true",
        /// Address to listen on. `CC_LINK_HOST` beats it.
        host: IpAddr = "0.0.0.0",
        /// Port to listen on; 0 takes any free one. `CC_LINK_PORT` beats it.
        port: u16 = "3001",
        /// Milliseconds that a computer has for an answer. `CC_PROBE_TIMEOUT_MS` beats it.
        probe_timeout_ms: NonZeroU32 = "2000",
    }
}

section! {
    /// Other services.
    Integrations {
        /// GitHub's API, or that of a forge which speaks it.
        github_base_url: HttpUrl = "https://api.github.com",
        /// Docker Hub's API.
        dockerhub_registry: HttpUrl = "https://hub.docker.com",
        /// Zone whose records the DNS tools show.
        cloudflare_zone_id: Option<ZoneId>,
    }
}
