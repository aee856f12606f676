//! Whether the bot hears and is heard, for `queue_status` and the log.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::client::Trouble;
use crate::agents::Queue;

/// The channel's name in `queue_status`. No target can have it.
pub const CHANNEL: &str = "telegram bot";
/// A shorter silence is nothing to tell of.
pub const WORTH_TELLING: Duration = Duration::from_secs(5);
/// Who meets the same silence later is told of it in rounded words.
const ROUNDING: Duration = Duration::from_secs(2);

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
    /// A message is being tried again and again. Whether it leaves tells more than any other answer of Telegram's.
    trying: bool,
    /// Until when, and in words.
    silence: Option<(Instant, String)>,
}

impl Standing {
    fn silent_until(&self) -> Option<Instant> {
        self.silence.as_ref().map(|(until, _)| *until).filter(|until| *until > Instant::now())
    }

    fn whole(&self) -> Option<String> {
        let silence = || self.silent_until().and_then(|_| self.silence.as_ref().map(|(_, told)| told.clone()));
        self.hearing.clone().or_else(|| self.sending.clone()).or_else(silence)
    }
}

impl Health {
    pub fn new(queue: Arc<Queue>) -> Self {
        Self { queue, now: Mutex::default(), able: watch::Sender::new(false) }
    }

    /// Telegram has answered a request of this bot's token: it would take messages, too, unless one is being tried in
    /// vain right now.
    pub fn reached(&self) {
        let mut now = self.now.lock();
        if !now.trying {
            now.sending = None;
            self.able.send_if_modified(|able| !std::mem::replace(able, true));
        }
    }

    /// Comes back when there is no reason to think that a message would not leave.
    pub async fn able_to_send(&self) {
        let mut able = self.able.subscribe();
        loop {
            let _ = able.wait_for(|able| *able).await;
            let silent = self.now.lock().silent_until();
            match silent {
                Some(until) => sleep_until(until).await,
                None => return,
            }
        }
    }

    /// Updates come, or do not.
    pub async fn hears(&self, trouble: Option<String>) {
        let (changed, whole) = {
            let mut now = self.now.lock();
            let changed = now.hearing != trouble;
            now.hearing.clone_from(&trouble);
            (changed, now.whole())
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
            now.trying = trouble.is_some();
            let silence = if trouble.is_none() { now.silence.take() } else { None };
            if now.sending == trouble && silence.is_none() {
                return;
            }
            now.sending.clone_from(&trouble);
            self.able.send_replace(trouble.is_none());
            now.whole()
        };
        match &trouble {
            Some(trouble) => warn!("the Telegram bot cannot send: {trouble}; messages wait, and are tried for ever"),
            None => info!("the Telegram bot sends again"),
        }
        self.queue.heard(CHANNEL, whole).await;
    }

    /// What did not leave is not tried any more. Whether the next one would, nobody knows.
    pub fn rests(&self) {
        self.now.lock().trying = false;
    }

    /// Telegram wants the whole bot to be silent.
    pub async fn silent(&self, silence: Duration) {
        let (until, told) = (Instant::now() + silence, Trouble::TooMany(silence).to_string());
        let whole = {
            let mut now = self.now.lock();
            if silence < WORTH_TELLING || now.silent_until().is_some_and(|known| until <= known + ROUNDING) {
                return;
            }
            now.silence = Some((until, told.clone()));
            now.whole()
        };
        warn!("the Telegram bot may not send: {told}; messages wait");
        self.queue.heard(CHANNEL, whole).await;
    }
}
