//! Chats: which target is where, and which number a group has now. A group that becomes a supergroup gets another.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use tracing::warn;

use crate::agents::targets::{Target, Targets, Way};
use crate::store::{Store, StoreError};

/// Where the targets that are reached by Telegram are.
#[derive(Debug)]
pub struct Places {
    store: Store,
    /// Under which name the store keeps what has moved.
    name: String,
    /// Target, chat, topic as configured.
    homes: Vec<(Arc<str>, i64, Option<i64>)>,
    moved: RwLock<BTreeMap<i64, i64>>,
}

impl Places {
    /// `chat` is where a target is that names none.
    pub fn new(store: Store, home: &str, targets: &Targets, chat: Option<i64>) -> Self {
        let homes = targets.iter().filter_map(|Target { name, way, .. }| match way {
            Way::Telegram { chat: own, topic } => Some((name.clone(), own.or(chat)?, *topic)),
            Way::Worker | Way::Webhook { .. } => None,
        });
        let homes = homes.collect();
        Self { store, name: format!("telegram:moved:{home}"), homes, moved: RwLock::default() }
    }

    /// Reads what was remembered.
    pub async fn recall(&self) {
        match self.store.remembered(&self.name).await {
            Ok(known) => {
                let known = known.and_then(|known| serde_json::from_str(&known).ok()).unwrap_or_default();
                *self.moved.write() = known;
            }
            Err(error) => warn!("which Telegram groups have moved is not known: {}", nexus_core::Chain(&error)),
        }
    }

    /// The number that a chat has now.
    pub fn now(&self, chat: i64) -> i64 {
        self.moved.read().get(&chat).copied().unwrap_or(chat)
    }

    pub async fn moved(&self, from: i64, to: i64) {
        if let Err(error) = self.note_move(from, to).await {
            warn!("that the Telegram group {from} has moved is not kept: {}", nexus_core::Chain(&error));
        }
    }

    /// The same. It is kept when this comes back; if that fails, only this process knows of it.
    pub async fn note_move(&self, from: i64, to: i64) -> Result<(), StoreError> {
        if self.now(from) != to {
            warn!("the Telegram group {from} is {to} now: write the new number into nexus.yaml");
        }
        let all = {
            let mut moved = self.moved.write();
            moved.values_mut().filter(|now| **now == from).for_each(|now| *now = to);
            moved.insert(from, to);
            // It has come back: nobody is led in circles.
            moved.remove(&to);
            serde_json::to_string(&*moved).unwrap_or_default()
        };
        self.store.remember(&self.name, &all).await
    }

    /// What is to be said of the chat of a target, if anything.
    pub fn trouble(&self, target: &str) -> Option<String> {
        let (_, chat, _) = self.of(target)?;
        let now = self.now(*chat);
        (now != *chat).then(|| format!("its group {chat} is {now} now: write the new number into nexus.yaml"))
    }

    fn of(&self, target: &str) -> Option<&(Arc<str>, i64, Option<i64>)> {
        self.homes.iter().find(|(name, ..)| **name == *target)
    }

    /// Where a target is, and its topic where one is configured.
    pub fn home(&self, target: &str) -> Option<(i64, Option<i64>)> {
        self.of(target).map(|(_, chat, topic)| (self.now(*chat), *topic))
    }

    /// All targets of a chat, with their configured topics.
    pub fn targets(&self, chat: i64) -> impl Iterator<Item = (&Arc<str>, Option<i64>)> {
        let here = move |(_, home, _): &&(_, i64, _)| self.now(*home) == chat;
        self.homes.iter().filter(here).map(|(name, _, topic)| (name, *topic))
    }
}
