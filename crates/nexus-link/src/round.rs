//! One question to one computer or to many: the same machinery for both.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::frame::LARGEST_IN;
use crate::link::Link;
use crate::protocol::Template;
use crate::registry::Target;

/// Requests that are sent before others get their turn.
const AT_A_TIME: usize = 64;

/// What is asked, and how long an answer is waited for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Question {
    pub method: Cow<'static, str>,
    pub params: Option<Value>,
    pub patience: Duration,
    /// Bytes of an answer that are taken.
    pub largest: usize,
}

impl Question {
    pub fn new(method: &'static str, patience: Duration) -> Self {
        Self { method: Cow::Borrowed(method), params: None, patience, largest: LARGEST_IN }
    }

    pub fn ping(patience: Duration) -> Self {
        Self::new("ping", patience)
    }

    #[must_use]
    pub fn params(self, params: Value) -> Self {
        Self { params: Some(params), ..self }
    }

    #[must_use]
    pub fn largest(self, largest: usize) -> Self {
        Self { largest, ..self }
    }

    /// Whether it changes something, and so ends when all computers are stopped.
    pub fn is_work(&self) -> bool {
        !matches!(
            &*self.method,
            "ping" | "status" | "stop" | "files.list" | "files.read" | "peripherals.list" | "redstone.get"
        )
    }

    /// A computer that knows only ping is never told to cancel.
    fn is_ping(&self) -> bool {
        self.method == "ping"
    }
}

/// What came of asking one computer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Answer(Box<RawValue>),
    /// It said no, in its own words.
    Refused(String),
    /// Nothing came in time.
    Silent,
    /// The link is gone.
    Gone,
    /// Another connection took its place.
    Replaced,
    /// All computers were stopped.
    Stopped,
    /// Too much waits for it already.
    Busy,
    /// The answer was larger than what is taken.
    TooLarge,
}

impl Outcome {
    /// For people. Never holds the computer's own words.
    pub fn told(&self) -> &'static str {
        match self {
            Outcome::Answer(_) => "it answered",
            Outcome::Refused(_) => "it refused",
            Outcome::Silent => "it did not answer in time",
            Outcome::Gone => "its link was lost",
            Outcome::Replaced => "another connection took its place",
            Outcome::Stopped => "all computers were stopped",
            Outcome::Busy => "it is behind with what it was asked before",
            Outcome::TooLarge => "its answer was too large",
        }
    }
}

/// A question under way.
#[derive(Debug)]
pub struct Round {
    slots: Mutex<Slots>,
    done: Notify,
    pub largest: usize,
    /// Whether what they answer matters, beside that they do.
    pub keeps: bool,
    pub is_work: bool,
    pub is_stop: bool,
}

#[derive(Debug)]
struct Slots {
    outcomes: Vec<Option<Outcome>>,
    left: usize,
}

impl Round {
    fn new(many: usize, question: &Question) -> Self {
        Self {
            slots: Mutex::new(Slots { outcomes: (0..many).map(|_| None).collect(), left: many }),
            done: Notify::new(),
            largest: question.largest,
            keeps: !question.is_ping(),
            is_work: question.is_work(),
            is_stop: question.method == "stop",
        }
    }

    /// Says how it went with one. The first word counts, and none after the round is over.
    pub fn settle(&self, slot: usize, outcome: Outcome) {
        let mut slots = self.slots.lock();
        match slots.outcomes.get_mut(slot) {
            Some(empty @ None) => *empty = Some(outcome),
            _ => return,
        }
        slots.left -= 1;
        if slots.left == 0 {
            self.done.notify_one();
        }
    }

    fn is_done(&self) -> bool {
        self.slots.lock().left == 0
    }

    fn is_open(&self, slot: usize) -> bool {
        self.slots.lock().outcomes.get(slot).is_some_and(Option::is_none)
    }

    fn outcomes(&self) -> Vec<Outcome> {
        let slots = std::mem::take(&mut self.slots.lock().outcomes);
        slots.into_iter().map(|outcome| outcome.unwrap_or(Outcome::Silent)).collect()
    }
}

/// A request that a link owes an answer to.
#[derive(Debug)]
pub struct Owed {
    pub id: u64,
    pub round: Arc<Round>,
    pub slot: usize,
}

/// Asks them all at once and waits for the last answer, or until time is up. The outcomes stand in the order of `whom`.
/// Ids count up from `first`.
pub async fn ask(
    whom: Vec<(Target, Option<Arc<Link>>)>,
    template: &Template,
    question: &Question,
    first: u64,
) -> Vec<Outcome> {
    if whom.is_empty() {
        return Vec::new();
    }
    let round = Arc::new(Round::new(whom.len(), question));
    // From here on: whoever stops waiting takes back what was asked.
    let asked = Asked { whom, round, first, tells: !question.is_ping() };
    for (slot, (target, link)) in asked.whom.iter().enumerate() {
        let id = first + slot as u64;
        let owed = Owed { id, round: asked.round.clone(), slot };
        let sent = match link {
            Some(link) => link.request(*target, owed, &template.frame(id)),
            None => Err(Outcome::Gone),
        };
        if let Err(outcome) = sent {
            asked.round.settle(slot, outcome);
        }
        if slot % AT_A_TIME == AT_A_TIME - 1 {
            tokio::task::yield_now().await;
        }
    }
    if !asked.round.is_done() {
        let _ = timeout(question.patience, asked.round.done.notified()).await;
    }
    asked.take_back();
    asked.round.outcomes()
}

/// What was asked, and is taken back when nobody waits any more.
struct Asked {
    whom: Vec<(Target, Option<Arc<Link>>)>,
    round: Arc<Round>,
    first: u64,
    /// Whether computers are told.
    tells: bool,
}

impl Asked {
    fn take_back(&self) {
        if self.round.is_done() {
            return;
        }
        for (slot, (_, link)) in self.whom.iter().enumerate() {
            if let Some(link) = link.as_ref().filter(|_| self.round.is_open(slot)) {
                link.take_back(self.first + slot as u64, self.tells);
            }
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.take_back();
    }
}
