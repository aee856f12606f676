//! How a server is doing, for those who wait for it and for those who look.

use jiff::Timestamp;
use serde::Serialize;
use thiserror::Error;

use nexus_core::clock;
use nexus_core::name::ServerName;

/// What a server is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Being started or called for the first time.
    Connecting,
    /// Answers.
    Ready,
    /// Connected, and something is not as it should be.
    Degraded { why: String },
    /// Lost or not reached; tried again then.
    Waiting { until: Timestamp, why: String },
    /// Not connected, and nothing is done about it until somebody asks for it.
    Stopped { why: String },
    /// May not be connected.
    Denied { why: String },
}

impl State {
    /// One word, the same everywhere.
    pub fn as_str(&self) -> &'static str {
        match self {
            State::Connecting => "connecting",
            State::Ready => "ready",
            State::Degraded { .. } => "degraded",
            State::Waiting { .. } => "waiting",
            State::Stopped { .. } => "stopped",
            State::Denied { .. } => "denied",
        }
    }

    pub fn why(&self) -> Option<&str> {
        match self {
            State::Connecting | State::Ready => None,
            State::Degraded { why } | State::Waiting { why, .. } | State::Stopped { why } | State::Denied { why } => {
                Some(why)
            }
        }
    }

    /// Whether calls can go to it now.
    pub fn is_connected(&self) -> bool {
        matches!(self, State::Ready | State::Degraded { .. })
    }
}

/// What a server is doing, and since when.
#[derive(Clone, Debug)]
pub struct Condition {
    pub state: State,
    pub since: Timestamp,
    /// How often it was connected again after it was lost.
    pub restarts: u64,
    pub last_error: Option<String>,
    /// Stopped, and started by the first who needs it.
    pub resting: bool,
    /// How often it was tried to connect it.
    pub tries: u64,
}

impl Condition {
    pub(super) fn new(state: State) -> Self {
        Self { state, since: clock::now(), restarts: 0, last_error: None, resting: false, tries: 1 }
    }

    /// True: that is news.
    pub(super) fn becomes(&mut self, state: State) -> bool {
        if self.state == state && !self.resting {
            return false;
        }
        if self.state.as_str() != state.as_str() {
            self.since = clock::now();
        }
        if let State::Degraded { why } | State::Waiting { why, .. } = &state {
            self.last_error = Some(why.clone());
        }
        self.resting = false;
        self.tries += u64::from(state == State::Connecting);
        self.state = state;
        true
    }
}

/// A server cannot be used now. Nothing was sent to it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Unavailable {
    #[error("the server `{server}` is still being connected; nothing was sent, try again in a moment")]
    Connecting { server: ServerName },
    #[error("the server `{server}` is away ({why}); nothing was sent, it is tried again at {until:.0}")]
    Waiting { server: ServerName, why: String, until: Timestamp },
    #[error("the server `{server}` is stopped ({why}); nothing was sent")]
    Stopped { server: ServerName, why: String },
    #[error("the server `{server}` may not be used ({why}); nothing was sent")]
    Denied { server: ServerName, why: String },
    #[error("the server `{server}` could not be connected ({why}); nothing was sent")]
    Failed { server: ServerName, why: String },
    #[error("`{server}` has {limit} processes of its own for sessions already; nothing was sent")]
    TooManySessions { server: ServerName, limit: usize },
    #[error("`{server}` has no tool `{tool}` any more; nothing was sent")]
    Gone { server: ServerName, tool: String },
    /// It says something else of this tool than what was allowed.
    #[error("the tool `{tool}` of `{server}` has changed and waits to be allowed again; nothing was sent")]
    Changed { server: ServerName, tool: String },
}

/// Everything about a server that is shown: `nexus mcp list --json`, `/health`, `list_upstreams`.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub name: String,
    /// `connecting`, `ready`, `degraded`, `waiting`, `stopped` or `denied`.
    pub state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// In this state since then.
    pub since: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
    /// The command or the address, without secrets.
    pub endpoint: String,
    /// The file and line of its entry.
    pub source: String,
    /// `shared`, or whose it is.
    pub visibility: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub era: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<Introduction>,
    pub tools: usize,
    /// Tools that wait to be allowed, by the server's own names.
    pub held: Vec<String>,
    pub set_aside: Vec<SetAside>,
    pub prompts: usize,
    pub resources: usize,
    /// Processes or connections of their own for sessions (`isolate`).
    pub sessions: usize,
    /// How often it was connected again after it was lost.
    pub restarts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// A server in its own words, cleaned and cut.
#[derive(Clone, Debug, Serialize)]
pub struct Introduction {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    pub version: String,
}

/// Something that a server lists and that is not offered, and why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetAside {
    /// Cleaned and cut.
    pub tool: String,
    pub why: String,
}
