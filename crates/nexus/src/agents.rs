//! The agent bridge: tasks out, updates back, nothing lost.
//!
//! A model's `send_message` puts a task into the [`queue`]. Whoever serves the target claims it (a worker or an agent
//! with its own key), or it is carried to them ([`telegram`], [`webhook`]). What they say becomes updates, which the
//! model reads with `pull_updates`.

use std::sync::{Arc, LazyLock};

use nexus_core::principal::Patterns;
use tokio_util::sync::CancellationToken;

mod bell;
pub mod opening;
pub mod queue;
pub mod tally;
pub mod targets;
pub mod task;
pub mod telegram;
pub mod tools;
pub mod voice;
pub mod webhook;

pub use queue::Queue;
pub use tally::Tally;
pub use targets::Targets;

/// What an agent's key may call.
pub const FOR_AGENTS: [&str; 6] =
    ["claim_task", "post_update", "complete_task", "fail_task", "ask_operator", "peek_tasks"];

pub static AGENT_TOOLS: LazyLock<Patterns> =
    LazyLock::new(|| Patterns::parse(FOR_AGENTS.map(str::to_owned)).unwrap_or_default());

/// The name of a data folder in the tables about tasks, where it stands in every entry of every index: as much of it as
/// tells the hubs of one database apart.
pub fn short(home: &str) -> String {
    home.chars().filter(char::is_ascii_alphanumeric).take(12).collect()
}

/// What the tools about tasks share.
#[derive(Debug)]
pub struct Bridge {
    pub queue: Arc<Queue>,
    pub targets: Arc<Targets>,
    /// Cancelled when the hub ends: whoever waits for an update then gets what there is.
    pub closing: CancellationToken,
    pub tally: Tally,
}

impl Bridge {
    pub fn new(queue: Arc<Queue>, targets: Targets, closing: CancellationToken) -> Self {
        Self { queue, targets: Arc::new(targets), closing, tally: Tally::default() }
    }
}
