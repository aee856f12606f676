//! Whom tasks can be sent to, as nexus.yaml says.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nexus_core::{ToolError, ToolResult};
use thiserror::Error;

use crate::config::sections;

/// All targets, and which one is meant where none is named.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    default: Option<Arc<str>>,
    all: BTreeMap<Arc<str>, Target>,
}

/// One agent's queue.
#[derive(Clone, Debug)]
pub struct Target {
    pub name: Arc<str>,
    pub way: Way,
    pub description: Option<String>,
    pub max_attempts: u32,
    /// How long an agent that does not beat may be silent.
    pub lease: Duration,
    /// How long a task may take, from when it is sent.
    pub deadline: Option<Duration>,
}

/// How a target is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// It comes and claims its tasks: `nexus agent`, or an agent with its own key.
    Worker,
    Telegram {
        chat: Option<i64>,
        topic: Option<i64>,
    },
    Webhook {
        url: String,
        secret_file: Option<PathBuf>,
    },
}

impl Way {
    pub fn as_str(&self) -> &'static str {
        match self {
            Way::Worker => "worker",
            Way::Telegram { .. } => "telegram",
            Way::Webhook { .. } => "webhook",
        }
    }
}

#[derive(Debug, Error)]
pub enum NoTarget {
    #[error("no agent is configured")]
    None,
    #[error("which agent? There is no default target")]
    NoDefault,
    #[error("there is no target `{0}`")]
    Unknown(String),
}

impl Targets {
    pub fn of(config: &sections::Agents) -> Self {
        let all = config.targets.iter().map(|(name, target)| {
            let name: Arc<str> = name.as_ref().into();
            (name.clone(), Target::of(name, target))
        });
        let all: BTreeMap<Arc<str>, Target> = all.collect();
        // A single target needs no one to say that it is the default.
        let only = (all.len() == 1).then(|| all.keys().next().cloned()).flatten();
        let default = config.default.as_ref().map(|name| Arc::from(name.as_ref()));
        Self { default: default.or(only), all }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Target> {
        self.all.values()
    }

    pub fn default(&self) -> Option<&Target> {
        self.get(self.default.as_deref()?)
    }

    pub fn get(&self, name: &str) -> Option<&Target> {
        self.all.get(name)
    }

    /// The one of that name; the default where none is named.
    pub fn find(&self, name: Option<&str>) -> ToolResult<&Target> {
        let found = match name {
            Some(name) => self.get(name).ok_or_else(|| NoTarget::Unknown(name.to_owned())),
            None => self.default().ok_or(NoTarget::NoDefault),
        };
        let names = || self.all.keys().map(|name| &**name).collect::<Vec<_>>().join(", ");
        found.map_err(|error| match self.all.is_empty() {
            true => ToolError::refused(NoTarget::None)
                .hint("the operator declares one in nexus.yaml, below agents.targets: docs/agents.md tells how"),
            false => ToolError::refused(error).hint(format!("known targets: {}", names())),
        })
    }
}

impl Target {
    fn of(name: Arc<str>, target: &sections::Target) -> Self {
        let way = match (&target.telegram, &target.webhook) {
            (Some(chat), _) => Way::Telegram { chat: chat.chat_id, topic: chat.topic },
            (None, Some(webhook)) => Way::Webhook {
                url: webhook.url.as_ref().to_owned(),
                secret_file: webhook.secret_file.as_ref().map(|path| AsRef::<std::path::Path>::as_ref(path).to_owned()),
            },
            (None, None) => Way::Worker,
        };
        Self {
            name,
            way,
            description: target.description.as_ref().map(|text| text.as_ref().to_owned()),
            max_attempts: target.max_attempts.get(),
            lease: target.lease.0,
            deadline: target.deadline.as_ref().map(|deadline| deadline.0),
        }
    }
}
