//! Whether a connected server still answers, and when to ask again what it has.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::establish::told;
use crate::upstream::client::Client;
use crate::upstream::error::{Delivery, RequestError, TransportError, UpstreamError};

const PING_PATIENCE: Duration = Duration::from_secs(10);

/// Changes of a list come in bursts.
const SETTLE: Duration = Duration::from_millis(100);

/// Between two looks at what a server has: at least this, and ten times what the last one took.
const BETWEEN_LISTS: Duration = Duration::from_secs(1);

/// Whether a server is there.
pub enum Answers {
    Yes,
    No(String),
    /// Asking again would not help: the connection is gone.
    NeverAgain(String),
}

/// Asks it.
pub async fn answers(client: &Client) -> Answers {
    let asked = tokio::select! {
        asked = timeout(PING_PATIENCE, client.ping()) => asked,
        error = client.closed() => return Answers::NeverAgain(error.to_string()),
    };
    match asked {
        Ok(Ok(())) => Answers::Yes,
        // It does not know how to answer that, and it answers.
        Ok(Err(RequestError { delivery: Delivery::Answered, .. })) => Answers::Yes,
        Ok(Err(RequestError { error: UpstreamError::Transport(error), .. })) => match error {
            TransportError::SessionLost | TransportError::Closed(_) => Answers::NeverAgain(error.to_string()),
            error => Answers::No(told(&error.to_string())),
        },
        Ok(Err(error)) => Answers::No(told(&error.to_string())),
        Err(_) => Answers::No(format!("it has not answered for {} s", PING_PATIENCE.as_secs())),
    }
}

/// When to look at the lists again.
pub struct NextList {
    pub at: Option<Instant>,
    not_before: Instant,
}

impl NextList {
    pub fn new() -> Self {
        Self { at: None, not_before: Instant::now() }
    }

    pub fn wanted(&mut self) {
        self.at.get_or_insert_with(|| (Instant::now() + SETTLE).max(self.not_before));
    }

    pub fn done(&mut self, took: Duration) {
        self.at = None;
        self.not_before = Instant::now() + BETWEEN_LISTS.max(took.saturating_mul(10));
    }
}
