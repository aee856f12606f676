//! A topic for each target, where the chat is a forum: configured, or made when first needed and remembered.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::warn;

use super::client::{Client, Trouble};
use super::places::Places;
use crate::store::{Store, StoreError};

/// Which topic is whose.
#[derive(Debug)]
pub struct Topics {
    client: Arc<Client>,
    places: Arc<Places>,
    store: Store,
    home: String,
    /// Those that we made. None: the chat has no topics, or does not let us make one.
    made: Mutex<HashMap<Place, Option<i64>>>,
}

/// A target in a chat.
type Place = (i64, Arc<str>);

impl Topics {
    pub fn new(client: Arc<Client>, places: Arc<Places>, store: Store, home: &str) -> Self {
        Self { client, places, store, home: home.to_owned(), made: Mutex::default() }
    }

    /// The topic that a target's tasks are posted in. Makes one where that is possible.
    pub async fn of(&self, target: &Arc<str>) -> Option<i64> {
        let (chat, configured) = self.places.home(target)?;
        if configured.is_some() || chat >= 0 {
            return configured;
        }
        let key = (chat, target.clone());
        let known = self.made.lock().get(&key).copied();
        if let Some(known) = known {
            return known;
        }
        let name = self.name(chat, target);
        let remembered = self.store.remembered(&name).await.ok().flatten();
        let found = match remembered.and_then(|topic| topic.parse().ok()) {
            Some(topic) => Some(topic),
            None => match self.make(chat, target).await {
                Ok(made) => made,
                // Not now; the next task asks again.
                Err(Trouble::Unreachable(_) | Trouble::TooMany(_) | Trouble::BadToken) => return None,
                Err(trouble) => {
                    warn!("no topic for {target} in the Telegram chat {chat}, its tasks go into the chat: {trouble}");
                    None
                }
            },
        };
        if let Some(topic) = found
            && let Err(error) = self.store.remember(&name, &topic.to_string()).await
        {
            warn!("the Telegram topic of {target} is not kept: {}", nexus_core::Chain(&error));
        }
        self.made.lock().insert(key, found);
        found
    }

    /// Which target a topic is of.
    pub async fn target(&self, chat: i64, topic: i64) -> Result<Option<Arc<str>>, StoreError> {
        let here: Vec<_> = self.places.targets(chat).map(|(name, topic)| (name.clone(), topic)).collect();
        if let Some((name, _)) = here.iter().find(|(_, configured)| *configured == Some(topic)) {
            return Ok(Some(name.clone()));
        }
        for (name, _) in here.into_iter().filter(|(_, configured)| configured.is_none()) {
            let known = self.made.lock().get(&(chat, name.clone())).copied().flatten();
            let known = match known {
                Some(known) => Some(known),
                None => self.store.remembered(&self.name(chat, &name)).await?.and_then(|topic| topic.parse().ok()),
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

    async fn make(&self, chat: i64, target: &str) -> Result<Option<i64>, Trouble> {
        match self.client.is_forum(chat).await? {
            true => self.client.create_topic(chat, target).await.map(Some),
            false => Ok(None),
        }
    }

    fn name(&self, chat: i64, target: &str) -> String {
        format!("telegram:topic:{}:{chat}:{target}", self.home)
    }
}
