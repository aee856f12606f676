//! Asks for updates, one request at a time, and never gives up. An update is confirmed by the next request, and that
//! is not made before what it said is stored.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use nexus_core::{Chain, clock};

use super::Bot;
use super::client::{LONGEST_SILENCE, Trouble, Wait};
use super::health::WORTH_TELLING;
use super::incoming::Incoming;
use super::pause::Pause;

/// After a week without updates their numbers start anew, somewhere: an old one would hide them.
const IDLE_MS: i64 = 6 * 24 * 3_600 * 1_000;
const SLOW: Duration = Duration::from_secs(60);
/// Nobody should answer faster than this that there is nothing; who does is not asked without end.
const NOTHING_NEW: Duration = Duration::from_secs(1);

/// Tries of one update that the store does not take although it takes other things: about half an hour.
const MOST_VAIN: u32 = 40;

/// The number of the next update, and when the last one came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offset {
    next: i64,
    came_ms: i64,
}

impl Offset {
    fn parse(text: &str) -> Option<Self> {
        let (next, came) = text.split_once(' ')?;
        Some(Self { next: next.parse().ok()?, came_ms: came.parse().ok()? })
    }

    /// None: it is too old to mean anything.
    fn to_ask(self, now_ms: i64) -> Option<i64> {
        (now_ms - self.came_ms < IDLE_MS).then_some(self.next)
    }
}

#[derive(Debug)]
pub struct Poller {
    bot: Arc<Bot>,
    stop: CancellationToken,
    offset: Option<Offset>,
    pause: Pause,
    /// A webhook was taken away since updates last came: that helps once.
    unhooked: bool,
    /// At first, and after trouble, nobody waits a minute to learn that all is well.
    wait: Wait,
}

impl Poller {
    pub fn new(bot: Arc<Bot>, stop: CancellationToken) -> Self {
        Self { bot, stop, offset: None, pause: Pause::default(), unhooked: false, wait: Wait::No }
    }

    /// Runs until it is dropped.
    pub async fn run(mut self) {
        self.introduce().await;
        self.offset = loop {
            match self.bot.store.remembered(&self.name()).await {
                Ok(kept) => break kept.as_deref().and_then(Offset::parse),
                Err(error) => self.wait_for_store(format!("where it was is not known: {}", Chain(&error))).await,
            }
        };
        loop {
            let (asked, from) = (Instant::now(), self.offset.and_then(|offset| offset.to_ask(clock::now_ms())));
            match self.bot.client.updates(from, self.wait).await {
                Ok(updates) => {
                    self.pause.reset();
                    self.unhooked = false;
                    self.bot.health.reached();
                    self.bot.health.hears(None).await;
                    let (waited, mut news) = (std::mem::replace(&mut self.wait, Wait::Long), false);
                    for update in updates.into_iter().filter_map(Incoming::of) {
                        news |= self.take(update).await;
                    }
                    // What cannot be read, or was here before, is nothing new either.
                    if !news && waited == Wait::Long && asked.elapsed() < NOTHING_NEW {
                        sleep(NOTHING_NEW).await;
                    }
                }
                Err(trouble) => self.recover(trouble).await,
            }
        }
    }

    /// Learns the bot's own name.
    async fn introduce(&mut self) {
        loop {
            match self.bot.client.me().await {
                Ok(me) => {
                    self.pause.reset();
                    self.bot.health.reached();
                    let name = me.username.unwrap_or_default();
                    info!("the Telegram bot is @{name}");
                    let _ = self.bot.name.set(name);
                    return;
                }
                Err(trouble) => self.recover(trouble).await,
            }
        }
    }

    /// Does what an update wants, and then lets it go. False: it was here before.
    async fn take(&mut self, update: Incoming) -> bool {
        // Numbers only grow; one that comes again was handled.
        if self.offset.is_some_and(|offset| offset.next > update.number && offset.to_ask(clock::now_ms()).is_some()) {
            return false;
        }
        self.carry_out(&update).await;
        if self.stop.is_cancelled() {
            // It may have been refused because the hub ends. It comes again, and counts once.
            return std::future::pending().await;
        }
        let offset = Offset { next: update.number + 1, came_ms: clock::now_ms() };
        let kept = format!("{} {}", offset.next, offset.came_ms);
        while let Err(error) = self.bot.store.remember(&self.name(), &kept).await {
            self.wait_for_store(format!("how far it has read is not kept: {}", Chain(&error))).await;
        }
        self.offset = Some(offset);
        self.pause.reset();
        true
    }

    /// Does what an update wants, again and again until that is stored. Those behind it wait with Telegram.
    async fn carry_out(&mut self, update: &Incoming) {
        let mut vain = 0;
        while let Err(why) = self.bot.handle(update).await {
            if vain >= MOST_VAIN {
                warn!("an update of the Telegram bot is let go: {why}");
                return self.bot.lets_go(update, &why);
            }
            self.wait_for_store(why.to_string()).await;
            // A store that is ill is waited for without end. One that takes all but this is not ill.
            let trying = format!("telegram:trying:{}:{}", self.bot.home, self.bot.id);
            if self.bot.store.remember(&trying, &update.number.to_string()).await.is_ok() {
                vain += 1;
            }
        }
    }

    async fn wait_for_store(&mut self, why: String) {
        self.wait = Wait::No;
        self.bot.health.hears(Some(why)).await;
        sleep(self.pause.next()).await;
    }

    async fn recover(&mut self, trouble: Trouble) {
        self.wait = Wait::No;
        if matches!(trouble, Trouble::Conflict(_)) {
            self.bot.health.reached();
        }
        match trouble {
            Trouble::Conflict(reason) if reason.contains("webhook") && !self.unhooked => {
                match self.bot.client.delete_webhook().await {
                    Ok(()) => {
                        self.unhooked = true;
                        warn!("the Telegram bot had a webhook, which was taken away: updates are asked for");
                    }
                    Err(trouble) => {
                        let told = format!("the bot has a webhook, which could not be taken away: {trouble}");
                        self.bot.health.hears(Some(told)).await;
                        sleep(self.pause.next()).await;
                    }
                }
            }
            Trouble::Conflict(_) => {
                let told = "another program asks Telegram for this bot's updates; end it, or give the hub its own bot";
                self.bot.health.hears(Some(told.to_owned())).await;
                sleep(self.pause.next()).await;
            }
            Trouble::BadToken => {
                self.bot.health.hears(Some(trouble.to_string())).await;
                sleep(SLOW).await;
            }
            Trouble::TooMany(silence) => {
                if silence >= WORTH_TELLING {
                    self.bot.health.hears(Some(trouble.to_string())).await;
                }
                sleep(silence.min(LONGEST_SILENCE)).await;
            }
            trouble => {
                self.bot.health.hears(Some(trouble.to_string())).await;
                sleep(self.pause.next()).await;
            }
        }
    }

    fn name(&self) -> String {
        format!("telegram:offset:{}:{}", self.bot.home, self.bot.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_kept_and_forgotten_after_six_idle_days() {
        let offset = Offset::parse("17 1000").unwrap();
        assert_eq!(offset, Offset { next: 17, came_ms: 1_000 });
        assert_eq!(offset.to_ask(1_000 + IDLE_MS - 1), Some(17));
        assert_eq!(offset.to_ask(1_000 + IDLE_MS), None);
        assert_eq!(Offset::parse("nonsense"), None);
    }
}
