//! The Telegram bot: tasks are posted into chats, and what allowed users say there becomes updates.
//!
//! Only the holder of the data folder runs it, since a bot's updates go to one program. Everything comes in through
//! [`poller`] and leaves through [`sender`]; what is in between has no connection of its own.

mod about;
mod access;
mod answers;
mod approvals;
mod client;
mod commands;
mod credentials;
mod health;
mod inbound;
mod incoming;
mod notices;
mod once;
mod pace;
mod pause;
mod places;
mod poller;
mod poster;
mod refusals;
mod sender;
mod split;
mod texts;
mod topics;
mod words;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use nexus_core::approval::Mode;
use nexus_core::audit::Sink;
use nexus_core::hub::Hub;
use nexus_core::tasks::Tasks;

use super::targets::{Targets, Way};
use super::voice::Voice;
use super::{Bridge, Queue};
use crate::config::Config;
use crate::store::Store;

use access::Access;
use answers::Answered;
use approvals::{Desk, Prompts};
use client::Client;
use credentials::Credentials;
pub use health::CHANNEL;
use health::Health;
use notices::Notices;
use places::Places;
use poller::Poller;
pub use poster::was_posted;
use poster::{Poster, Posting};
use sender::{Outbox, Sender};
use texts::Texts;
use topics::Topics;

/// Replies that wait to be sent.
const MOST_REPLIES: usize = 64;

/// What the bot needs of the hub.
pub struct World {
    pub hub: Arc<Hub>,
    pub bridge: Arc<Bridge>,
    pub store: Store,
    pub home: String,
    pub audit: Arc<dyn Sink>,
    pub tasks: Tasks,
    /// Cancelled when another process becomes the holder.
    pub background: CancellationToken,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("home", &self.home).finish_non_exhaustive()
    }
}

/// What the parts of the bot share.
pub struct Bot {
    /// Its number, from the token.
    id: i64,
    /// What it is called, once Telegram has said so.
    name: OnceLock<String>,
    client: Arc<Client>,
    hub: Arc<Hub>,
    queue: Arc<Queue>,
    store: Store,
    home: String,
    tasks: Tasks,
    access: Access,
    places: Arc<Places>,
    topics: Topics,
    health: Arc<Health>,
    outbox: Outbox,
    voices: Mutex<HashMap<i64, Voice>>,
    posting: Posting,
    prompts: Prompts,
    answered: Answered,
    texts: Texts,
    replies: Arc<Semaphore>,
    /// The chat in which approvals are asked for.
    operator: Option<i64>,
}

impl fmt::Debug for Bot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bot").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

/// Starts the bot, where there is one. What is wrong with its credentials does not keep the hub from starting.
pub async fn start(config: &Config, world: World) {
    let queue = world.bridge.queue.clone();
    let told = match credentials::find(config) {
        Ok(Some(credentials)) => return run(config, credentials, world).await,
        Ok(None) => match is_wanted(&world.bridge.targets) {
            true => "targets are reached by Telegram, but TELEGRAM_BOT_TOKEN is not set".to_owned(),
            false => return,
        },
        // What follows the name of a secret and a colon is hidden in the log.
        Err(error) => match &config.agents.telegram.credentials_file {
            Some(_) => format!("its credentials_file or TELEGRAM_BOT_TOKEN is not right, {error}"),
            None => format!("TELEGRAM_BOT_TOKEN is not right, {error}"),
        },
    };
    error!("the Telegram bot is off: {told}");
    queue.heard(CHANNEL, Some(told)).await;
}

/// Whether there is a bot, or should be one.
pub fn is_expected(config: &Config, targets: &Targets) -> bool {
    is_wanted(targets) || !matches!(credentials::find(config), Ok(None))
}

fn is_wanted(targets: &Targets) -> bool {
    targets.iter().any(|target| matches!(target.way, Way::Telegram { .. }))
}

async fn run(config: &Config, credentials: Credentials, world: World) {
    let World { hub, bridge, store, home, audit, tasks, background } = world;
    let telegram = &config.agents.telegram;
    let client = match Client::new(telegram.api_url.as_ref(), &credentials.token, audit.clone()) {
        Ok(client) => Arc::new(client),
        Err(error) => return error!("the Telegram bot is off: agents.telegram.api_url: {error}"),
    };
    if telegram.allowed_users.is_empty() {
        warn!("the Telegram bot believes nobody: agents.telegram.allowed_users is empty");
    }
    let queue = bridge.queue.clone();
    let places = Arc::new(Places::new(store.clone(), &home, &bridge.targets, credentials.chat));
    places.recall().await;
    let listened = telegram.allowed_chats.iter().copied().chain(credentials.chat);
    let access = Access::new(&telegram.allowed_users, listened, places.clone(), audit);
    let health = Arc::new(Health::new(queue.clone()));
    let (outbox, inbox) = Outbox::new();
    let sender = Sender { client: client.clone(), health: health.clone(), places: places.clone() };
    let bot = Arc::new(Bot {
        id: credentials.token.bot(),
        name: OnceLock::new(),
        topics: Topics::new(client.clone(), places.clone(), store.clone(), &home),
        client,
        hub,
        queue,
        store,
        home,
        tasks: tasks.clone(),
        access,
        places,
        health,
        outbox,
        voices: Mutex::default(),
        posting: Posting::default(),
        prompts: Prompts::default(),
        answered: Answered::default(),
        texts: Texts::default(),
        replies: Arc::new(Semaphore::new(MOST_REPLIES)),
        operator: credentials.chat.or_else(|| telegram.allowed_users.first().copied()),
    });

    // Sending goes on for as long as there is something to send; all else ends with the holder's work.
    let spawn = |name, work| spawn_until(&tasks, &background, name, work);
    spawn("messages to Telegram", Box::pin(sender.run(inbox)));
    spawn("updates from Telegram", Box::pin(Poller::new(bot.clone(), tasks.stopping()).run()));
    spawn("notices to Telegram", Box::pin(Notices::new(bot.clone()).run()));
    for target in bridge.targets.iter().filter(|target| matches!(target.way, Way::Telegram { .. })) {
        spawn("tasks to Telegram", Box::pin(Poster::new(bot.clone(), target).run()));
    }
    if bot.hub.approvals.mode == Mode::Operator {
        match bot.operator {
            Some(chat) => spawn("approvals in Telegram", Box::pin(Desk::new(bot.clone(), chat).run())),
            None => warn!("approvals are not asked for in Telegram: neither chat_id nor allowed_users names a chat"),
        }
    }
}

type Work = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

fn spawn_until(tasks: &Tasks, background: &CancellationToken, name: &'static str, work: Work) {
    let (stop, background) = (tasks.stopping(), background.clone());
    tasks.spawn(name, async move {
        tokio::select! {
            () = work => {}
            () = stop.cancelled() => {}
            () = background.cancelled() => {}
        }
    });
}

impl Bot {
    /// Something that nobody waits for, until the hub ends.
    fn aside(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.tasks.stopping();
        self.tasks.spawn(name, async move {
            tokio::select! {
                () = work => {}
                () = stop.cancelled() => {}
            }
        });
    }
}
