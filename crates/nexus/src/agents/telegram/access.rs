//! Who is believed: numbers that the operator wrote down, and nobody else. Anybody in the world can write to a bot.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use nexus_core::audit::{Event, Row, Sink};
use nexus_core::session::Transport;

use super::incoming::{Chat, User};
use super::places::Places;

/// Rows about strangers, at most this many in [`WINDOW`].
const MOST_TOLD: usize = 50;
const WINDOW: Duration = Duration::from_secs(3_600);

/// The lists, and whom was already told of.
pub struct Access {
    users: HashSet<i64>,
    /// Chats that are listened to: those listed, those of targets, and the operator's.
    chats: HashSet<i64>,
    places: Arc<Places>,
    audit: Arc<dyn Sink>,
    told: Mutex<Told>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("users", &self.users).field("chats", &self.chats).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Told {
    since: Instant,
    whom: HashSet<(i64, i64)>,
}

impl Access {
    pub fn new(users: &[i64], chats: impl IntoIterator<Item = i64>, places: Arc<Places>, audit: Arc<dyn Sink>) -> Self {
        let told = Told { since: Instant::now(), whom: HashSet::new() };
        let (users, chats) = (users.iter().copied().collect(), chats.into_iter().collect());
        Self { users, chats, places, audit, told: Mutex::new(told) }
    }

    /// Whether what this user says in this chat counts. A bot is not even recorded: it is often ourselves.
    pub fn believes(&self, user: &User, chat: &Chat) -> bool {
        if user.is_bot {
            return false;
        }
        let known = self.users.contains(&user.id);
        let own = chat.id == user.id && matches!(chat.kind.as_str(), "private" | "");
        let listed = self.chats.iter().any(|listed| self.places.now(*listed) == chat.id);
        let believed = known && (own || listed || self.places.targets(chat.id).next().is_some());
        if !believed {
            self.refused(user, chat, known);
        }
        believed
    }

    /// Whether the operator wrote this chat down, under the number that it has or had.
    pub fn listens_to(&self, chat: i64) -> bool {
        let now = self.places.now(chat);
        self.chats.iter().any(|listed| self.places.now(*listed) == now) || self.places.targets(now).next().is_some()
    }

    /// Whether something of a task may be said there. A private chat has the number of its user.
    pub fn may_be_told(&self, chat: i64) -> bool {
        self.users.contains(&chat) || self.listens_to(chat)
    }

    /// One row for each stranger, and not too many.
    fn refused(&self, user: &User, chat: &Chat, known: bool) {
        {
            let mut told = self.told.lock();
            if told.since.elapsed() > WINDOW {
                *told = Told { since: Instant::now(), whom: HashSet::new() };
            }
            if told.whom.len() >= MOST_TOLD || !told.whom.insert((user.id, chat.id)) {
                return;
            }
        }
        let why = if known { "which is not listened to" } else { "who is not in allowed_users" };
        let detail = match known {
            true => format!("Telegram user {} in chat {}, {why}", user.id, chat.id),
            false => format!("Telegram user {} {why}, in chat {}", user.id, chat.id),
        };
        let row = Row { transport: Some(Transport::Telegram), ..Row::new(Event::KeyRefused) };
        self.audit.post(row.detail(detail));
    }
}
