//! What servers need around them: who sees them, how they are reached, who is told.

use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use nexus_core::name::ServerName;
use nexus_core::principal::PrincipalId;
use nexus_core::tasks::Tasks;

use super::offer::NameClaims;
use crate::upstream::config::ServerConfig;
use crate::upstream::error::ConfigurationError;
use crate::upstream::log::ServerLog;
use crate::upstream::pins::Memory;
use crate::upstream::transport::Connector;

/// Who sees a connected server's tools.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Visibility {
    Shared,
    /// Only this key.
    Private(PrincipalId),
}

impl Visibility {
    pub fn is_seen_by(&self, agent: &PrincipalId) -> bool {
        match self {
            Visibility::Shared => true,
            Visibility::Private(owner) => owner == agent,
        }
    }
}

impl fmt::Display for Visibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Visibility::Shared => f.write_str("shared"),
            Visibility::Private(owner) => write!(f, "private to {owner}"),
        }
    }
}

/// Makes the way to a server from its entry.
pub trait Connectors: fmt::Debug + Send + Sync {
    fn connector(&self, config: &ServerConfig, log: Arc<ServerLog>) -> Result<Arc<dyn Connector>, ConfigurationError>;
}

/// Is told what happened with servers, for the record.
pub trait Witness: fmt::Debug + Send + Sync {
    /// Must come back at once.
    fn happened(&self, server: &ServerName, what: Happened);
}

/// What is worth a line in the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    Connected,
    Lost {
        why: String,
    },
    /// These tools are new or changed and wait, by the server's own names.
    Held {
        tools: Vec<String>,
    },
    /// Somebody allowed these.
    Allowed {
        tools: Vec<String>,
    },
}

/// Sees nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoWitness;

impl Witness for NoWitness {
    fn happened(&self, _server: &ServerName, _what: Happened) {}
}

/// What all servers share.
#[derive(Clone, Debug)]
pub struct Parts {
    pub connectors: Arc<dyn Connectors>,
    pub memory: Arc<dyn Memory>,
    pub witness: Arc<dyn Witness>,
    pub names: NameClaims,
    pub tasks: Tasks,
    /// What servers of the old era are told that we can do.
    pub capabilities: Value,
}

impl Parts {
    pub fn new(connectors: Arc<dyn Connectors>, memory: Arc<dyn Memory>, tasks: Tasks) -> Self {
        // No `roots`: they are asked for outside of any call, and then nobody knows whose.
        let capabilities = json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {} });
        Self { connectors, memory, witness: Arc::new(NoWitness), names: NameClaims::default(), tasks, capabilities }
    }
}

/// What a server says outside of any call.
#[derive(Clone, Debug)]
pub enum Notice {
    /// A resource that was subscribed to has changed, by the server's own URI.
    Updated(Arc<str>),
    /// The parameters of `notifications/message`.
    Logged(Arc<RawValue>),
}
