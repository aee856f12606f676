//! A topic for each target, where the chat is a forum: configured, or made when first needed and remembered.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::warn;

use super::client::{Client, Trouble};
use super::places::Places;
use super::sender::Unsaid;
use crate::store::{Store, StoreError};

/// A topic that is not made after so many tries is done without, although the chat itself can be asked.
const MOST_VAIN: u32 = 5;

/// Why it is not known which topic it is.
#[derive(Debug)]
pub enum NoTopic {
    /// It is to be asked again.
    NotNow(Trouble),
    /// The chat does not let the bot in.
    Shut(Unsaid),
    Store(StoreError),
}

impl From<StoreError> for NoTopic {
    fn from(error: StoreError) -> Self {
        NoTopic::Store(error)
    }
}

/// Which topic is whose.
#[derive(Debug)]
pub struct Topics {
    client: Arc<Client>,
    places: Arc<Places>,
    store: Store,
    home: String,
    /// Those that we made. None: the chat has no topics, or does not let us make one.
    made: Mutex<HashMap<Place, Option<i64>>>,
    /// How often one could not be made.
    vain: Mutex<HashMap<Place, u32>>,
}

/// A target in a chat.
type Place = (i64, Arc<str>);

impl Topics {
    pub fn new(client: Arc<Client>, places: Arc<Places>, store: Store, home: &str) -> Self {
        Self { client, places, store, home: home.to_owned(), made: Mutex::default(), vain: Mutex::default() }
    }

    /// The topic that a target's tasks are posted in, as far as that is known.
    pub async fn of(&self, target: &Arc<str>) -> Option<i64> {
        let (chat, configured) = self.places.home(target)?;
        if configured.is_some() || chat >= 0 {
            return configured;
        }
        match self.known(chat, target) {
            Some(known) => known,
            None => self.kept(chat, target).await.ok().flatten(),
        }
    }

    /// The same. Makes one where that is possible; what is not known now is not guessed.
    pub async fn find(&self, target: &Arc<str>) -> Result<Option<i64>, NoTopic> {
        let Some((chat, configured)) = self.places.home(target) else { return Ok(None) };
        if configured.is_some() || chat >= 0 {
            return Ok(configured);
        }
        if let Some(known) = self.known(chat, target) {
            return Ok(known);
        }
        let found = match self.kept(chat, target).await? {
            Some(topic) => Some(topic),
            None => self.make(chat, target).await?,
        };
        if let Some(topic) = found
            && let Err(error) = self.store.remember(&self.name(chat, target), &topic.to_string()).await
        {
            warn!("the Telegram topic of {target} is not kept: {}", nexus_core::Chain(&error));
        }
        self.made.lock().insert((chat, target.clone()), found);
        Ok(found)
    }

    fn known(&self, chat: i64, target: &Arc<str>) -> Option<Option<i64>> {
        self.made.lock().get(&(chat, target.clone())).copied()
    }

    async fn kept(&self, chat: i64, target: &str) -> Result<Option<i64>, StoreError> {
        Ok(self.store.remembered(&self.name(chat, target)).await?.and_then(|topic| topic.parse().ok()))
    }

    /// Which target a topic is of.
    pub async fn target(&self, chat: i64, topic: i64) -> Result<Option<Arc<str>>, StoreError> {
        let here: Vec<_> = self.places.targets(chat).map(|(name, topic)| (name.clone(), topic)).collect();
        if let Some((name, _)) = here.iter().find(|(_, configured)| *configured == Some(topic)) {
            return Ok(Some(name.clone()));
        }
        for (name, _) in here.into_iter().filter(|(_, configured)| configured.is_none()) {
            let known = match self.known(chat, &name).flatten() {
                Some(known) => Some(known),
                None => self.kept(chat, &name).await?,
            };
            if known == Some(topic) {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// It is not there any more: the next task gets a new one.
    pub async fn gone(&self, target: &Arc<str>) {
        let Some((chat, None)) = self.places.home(target) else { return };
        self.made.lock().remove(&(chat, target.clone()));
        if let Err(error) = self.store.remember(&self.name(chat, target), "").await {
            warn!("the lost Telegram topic of {target} is not forgotten: {}", nexus_core::Chain(&error));
        }
    }

    async fn make(&self, chat: i64, target: &Arc<str>) -> Result<Option<i64>, NoTopic> {
        let trouble = match self.client.is_forum(chat).await {
            Ok(true) => return self.create(chat, target).await,
            Ok(false) => return Ok(None),
            Err(trouble) => trouble,
        };
        match trouble {
            Trouble::Refused { moved_to: Some(to), .. } if to != chat => {
                self.places.moved(chat, to).await;
                Err(NoTopic::NotNow(trouble))
            }
            // What was said of the chat today may not be so tomorrow: nothing is kept of it.
            Trouble::Refused { reason, .. } | Trouble::Forbidden(reason) => {
                Err(NoTopic::Shut(Unsaid::shut_out(chat, &reason)))
            }
            trouble => Err(NoTopic::NotNow(trouble)),
        }
    }

    async fn create(&self, chat: i64, target: &Arc<str>) -> Result<Option<i64>, NoTopic> {
        let trouble = match self.client.create_topic(chat, target).await {
            Ok(topic) => return Ok(Some(topic)),
            Err(trouble) => trouble,
        };
        let vain = match trouble {
            Trouble::Forbidden(reason) => return Err(NoTopic::Shut(Unsaid::shut_out(chat, &reason))),
            Trouble::TooMany(_) | Trouble::BadToken => return Err(NoTopic::NotNow(trouble)),
            Trouble::Refused { .. } => MOST_VAIN,
            Trouble::Unreachable(_) | Trouble::Garbled(_) | Trouble::Conflict(_) => {
                let mut vain = self.vain.lock();
                let vain = vain.entry((chat, target.clone())).or_default();
                *vain += 1;
                *vain
            }
        };
        // The chat itself was there a moment ago.
        if vain < MOST_VAIN {
            return Err(NoTopic::NotNow(trouble));
        }
        warn!("no topic for {target} in the Telegram chat {chat}, its tasks go into the chat: {trouble}");
        Ok(None)
    }

    fn name(&self, chat: i64, target: &str) -> String {
        format!("telegram:topic:{}:{chat}:{target}", self.home)
    }
}
