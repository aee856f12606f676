//! The front doors: who comes in by which way, and what becomes of a message before anyone answers it.
//!
//! `door` accepts connections, `guard` checks Host, Origin and key, `http`, `sse` and `stdio` are
//! the three transports, `identity` decides what a session is.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use nexus_core::principal::{Principal, PrincipalId};
use nexus_core::tasks::Tasks;

use crate::server::Server;

pub mod address;
pub mod auth;
pub mod door;
mod duplex;
mod guard;
mod http;
pub mod identity;
mod mirror;
mod sse;
pub mod stdio;
mod stream;
mod unread;
pub mod updates;

/// Everything the HTTP doors share.
pub struct Front {
    pub server: Arc<Server>,
    pub keys: Arc<auth::Keys>,
    pub sessions: Arc<identity::Sessions>,
    pub tasks: Tasks,
    pub settings: Settings,
    /// What `GET /health` answers.
    pub health: Box<dyn Fn() -> Value + Send + Sync>,
    failures: auth::Failures,
    streams: sse::Streams,
    inbox: updates::Inbox,
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Front {
    pub fn new(
        server: Arc<Server>,
        keys: Arc<auth::Keys>,
        sessions: Arc<identity::Sessions>,
        tasks: Tasks,
        settings: Settings,
        health: Box<dyn Fn() -> Value + Send + Sync>,
    ) -> Self {
        Self {
            server,
            keys,
            sessions,
            tasks,
            settings,
            health,
            failures: auth::Failures::default(),
            streams: sse::Streams::default(),
            inbox: updates::Inbox::new(None),
        }
    }

    /// Takes what agents say to which tasks are posted.
    #[must_use]
    pub fn with_updates(mut self, taker: Option<Arc<dyn updates::Updates>>) -> Self {
        self.inbox = updates::Inbox::new(taker);
        self
    }
}

impl Front {
    /// Comes back when a principal may no longer be here, for streams that outlive the request that opened them.
    async fn revoked(&self, principal: &Principal, keys: &mut watch::Receiver<u64>) {
        while self.admits(&principal.id) {
            if keys.changed().await.is_err() {
                return;
            }
        }
    }

    fn admits(&self, principal: &PrincipalId) -> bool {
        self.is_keyless(principal) || self.keys.admits(principal)
    }

    fn is_keyless(&self, principal: &PrincipalId) -> bool {
        self.settings.keyless.as_ref().is_some_and(|keyless| keyless.principal().id == *principal)
    }

    /// Ends the sessions of keys that are revoked or have run out.
    fn end_revoked_sessions(&self) {
        self.sessions.end_where(|principal| !self.admits(principal), "its key is gone");
    }

    /// The keys in which a call that waited looks its own up again.
    fn keys_of(&self, principal: &Principal) -> Option<Arc<auth::Keys>> {
        (!self.is_keyless(&principal.id)).then(|| self.keys.clone())
    }
}

/// What the operator has set for the HTTP doors.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Host names (with or without a port) under which the hub may be addressed, beside loopback.
    pub hosts: Vec<String>,
    /// Origins a browser may come from, beside loopback.
    pub origins: Vec<String>,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub proxies: Vec<address::Network>,
    /// Who may come in without a key; only test servers let anyone.
    pub keyless: Option<Keyless>,
}

/// Those who need no key, and whom they count as.
#[derive(Clone, Debug)]
pub enum Keyless {
    /// Whoever calls from this machine.
    Loopback(Arc<Principal>),
    /// Anyone, under any name the server is called by.
    Anyone(Arc<Principal>),
}

impl Keyless {
    fn principal(&self) -> &Arc<Principal> {
        match self {
            Keyless::Loopback(principal) | Keyless::Anyone(principal) => principal,
        }
    }

    fn admits(&self, caller: IpAddr) -> bool {
        match self {
            Keyless::Loopback(_) => caller.is_loopback(),
            Keyless::Anyone(_) => true,
        }
    }
}

/// Bytes. Larger requests are refused.
pub const LARGEST_BODY: usize = 4 * 1024 * 1024;

/// A sender that needs longer than this for a head or a body is not one we wait for.
pub const SLOWEST_SENDER: Duration = Duration::from_secs(30);

/// Silence after which a stream shows that it is alive, for proxies that cut idle connections.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);
