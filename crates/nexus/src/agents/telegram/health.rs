//! Whether the bot hears and is heard, for `queue_status` and the log.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::{info, warn};

use super::client::Trouble;
use crate::agents::Queue;

/// The channel's name in `queue_status`. No target can have it.
pub const CHANNEL: &str = "telegram bot";

/// What is wrong, if anything.
#[derive(Debug)]
pub struct Health {
    queue: Arc<Queue>,
    now: Mutex<Standing>,
    /// Telegram has answered, and takes messages as far as anybody knows.
    able: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Standing {
    hearing: Option<String>,
    sending: Option<String>,
}

impl Health {
    pub fn new(queue: Arc<Queue>) -> Self {
        Self { queue, now: Mutex::default(), able: watch::Sender::new(false) }
    }

    /// Telegram has answered a request of this bot's token: it would take messages, too.
    pub fn reached(&self) {
        self.now.lock().sending = None;
        self.able.send_if_modified(|able| !std::mem::replace(able, true));
    }

    /// Comes back when there is no reason to think that a message would not leave.
    pub async fn able_to_send(&self) {
        let mut able = self.able.subscribe();
        let _ = able.wait_for(|able| *able).await;
    }

    /// Updates come, or do not.
    pub async fn hears(&self, trouble: Option<String>) {
        let (changed, whole) = {
            let mut now = self.now.lock();
            let changed = now.hearing != trouble;
            now.hearing.clone_from(&trouble);
            (changed, now.hearing.clone().or_else(|| now.sending.clone()))
        };
        match trouble {
            Some(trouble) if changed => warn!("the Telegram bot hears nothing: {trouble}; it tries again for ever"),
            None if changed => info!("the Telegram bot hears again"),
            _ => {}
        }
        self.queue.heard(CHANNEL, whole).await;
    }

    /// Messages leave, or do not.
    pub async fn sends(&self, trouble: Option<&Trouble>) {
        let trouble = trouble.map(ToString::to_string);
        let whole = {
            let mut now = self.now.lock();
            if now.sending == trouble {
                return;
            }
            now.sending.clone_from(&trouble);
            self.able.send_replace(trouble.is_none());
            now.hearing.clone().or_else(|| now.sending.clone())
        };
        match &trouble {
            Some(trouble) => warn!("the Telegram bot cannot send: {trouble}; messages wait, and are tried for ever"),
            None => info!("the Telegram bot sends again"),
        }
        self.queue.heard(CHANNEL, whole).await;
    }
}
