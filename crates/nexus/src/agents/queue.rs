//! The queue of every target, kept in the store. All changes go through one writer, which commits many at a time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nexus_core::Chain;
use nexus_core::audit::Sink;
use nexus_core::tasks::Tasks;
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::bell::Bell;
use super::task::{Act, Kind, Priority, Status, Task, TaskId};
use crate::store::{Store, StoreError};

mod batch;
mod claim;
mod clock;
mod ears;
mod keep;
mod look;
mod report;
mod send;
mod settle;
mod tend;
mod witness;
mod writer;

use clock::Clock;
use ears::Ears;
use witness::Witness;
use writer::{Asked, Change, Op, Writer};

/// A message that becomes a task.
#[derive(Clone, Debug)]
pub struct NewTask {
    pub target: Arc<str>,
    pub content: String,
    pub priority: Priority,
    pub deadline: Option<Timestamp>,
    pub max_attempts: u32,
    pub idempotency_key: Option<String>,
    pub sender: String,
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    Queued {
        id: TaskId,
        /// How many are done before it, and itself. 0: a bare STOP is done at once.
        position: i64,
        /// The running tasks that it ended.
        stopped: Vec<TaskId>,
    },
    /// The same is there already: unfinished with the same words, or with the same key.
    Duplicate { id: TaskId },
}

/// Who takes a task.
#[derive(Clone, Debug)]
pub struct Claim {
    pub target: Arc<str>,
    /// A name for it that the claimer has chosen. The same name again gives the same task again, as long as it runs.
    pub claim: String,
    /// The key, or the carrier.
    pub by: String,
    pub lease: Lease,
}

/// How long a claim holds without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// Its claimer beats all the time.
    Beats(Duration),
    /// Its claimer is heard when it has something to say. While it waits for an answer it may be silent.
    Speaks(Duration),
    /// Nobody takes it away: it was carried to somebody who is no program.
    Held,
}

/// Whether a task that was carried has reached anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    Never,
    Perhaps,
}

/// By what right somebody reports.
#[derive(Clone, Debug)]
pub enum Who {
    /// They have claimed it: under this name, or else with this key.
    Claimer { claim: Option<String>, by: String },
    /// They carry what somebody says who was given the task.
    Carrier,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saying {
    Progress,
    Note,
    Ask,
    Complete,
    Fail,
}

/// What an agent says of a task.
#[derive(Clone, Debug)]
pub struct Report {
    pub task: TaskId,
    pub who: Who,
    pub saying: Saying,
    pub content: String,
    pub exit_code: Option<i64>,
    /// What is said under the same name is taken once.
    pub source: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// The number of the update. The same report again has the same.
    pub seq: i64,
    /// False: it had been taken before.
    pub new: bool,
    /// Where the task stands now. When it is finished otherwise, what was said is kept and changes nothing.
    pub status: Status,
}

/// Where a claim stands.
#[derive(Clone, Debug)]
pub struct Held {
    pub claim: String,
    pub task: TaskId,
    pub status: Status,
    pub reason: Option<String>,
    /// It holds. Otherwise the work is to be stopped.
    pub holds: bool,
}

/// Which updates are wanted.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only those behind this one.
    pub after: i64,
    pub since: Option<Timestamp>,
    pub target: Option<Arc<str>>,
    pub task: Option<TaskId>,
    pub limit: i64,
}

/// Which tasks are wanted, newest first.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    pub target: Option<Arc<str>>,
    /// None: all. Empty: none.
    pub status: Option<Vec<Status>>,
    /// Only those with a smaller number.
    pub before: Option<TaskId>,
    pub limit: i64,
}

/// How many tasks a target has of one kind.
#[derive(Clone, Debug)]
pub struct Count {
    pub target: String,
    pub status: Status,
    pub n: i64,
}

/// When a target's agent, or a channel, was last heard.
#[derive(Clone, Debug)]
pub struct Channel {
    pub name: String,
    pub heard: Option<Timestamp>,
    pub trouble: Option<String>,
}

#[derive(Debug, Error)]
pub enum QueueError {
    #[error("there is no task {0}")]
    Unknown(TaskId),
    #[error("{task} is {status}; {why}")]
    Conflict { task: TaskId, status: Status, why: &'static str },
    #[error("{task} belongs to somebody else now; stop working on it")]
    Lost { task: TaskId },
    #[error("{task} says the same as {other}, which is not finished")]
    SameWords { task: TaskId, other: TaskId },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the hub is ending")]
    Ending,
}

/// What one can wait for. In this process, and in others of the same data folder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// Any update.
    Updates,
    /// A change of any task of this target: a new one, a claim, a cancel, an answer.
    Tasks(Arc<str>),
}

/// Changes that wait for the writer. Whoever comes when it is full waits.
const INBOX: usize = 1_024;

/// The tasks of a hub's agents, as one process sees them. Other processes of the data folder have their own.
#[derive(Debug)]
pub struct Queue {
    store: Store,
    home: Arc<str>,
    clock: Clock,
    bell: Arc<Bell>,
    ears: Arc<Ears>,
    due: Arc<watch::Sender<Option<i64>>>,
    inbox: mpsc::Sender<Op>,
    witness: Witness,
}

impl Queue {
    /// What the hub itself does to tasks is recorded there from now on.
    pub fn record_to(&self, audit: Arc<dyn Sink>) {
        self.witness.record_to(audit);
    }

    /// Starts the writer and listens for other processes of the data folder.
    pub fn start(store: Store, home: &str, data: &Path, tasks: &Tasks) -> std::io::Result<Arc<Self>> {
        Self::start_at(Clock::Real, store, home, data, tasks)
    }

    fn start_at(clock: Clock, store: Store, home: &str, data: &Path, tasks: &Tasks) -> std::io::Result<Arc<Self>> {
        let (inbox, coming) = mpsc::channel(INBOX);
        let bell = Bell::hang(data, tasks)?;
        let (ears, due) = (Arc::new(Ears::default()), Arc::new(watch::Sender::new(None)));
        let queue = Self { store, home: home.into(), clock, bell, ears, due, inbox, witness: Witness::default() };
        let writer = Writer {
            store: queue.store.clone(),
            home: queue.home.clone(),
            clock: queue.clock.clone(),
            bell: queue.bell.clone(),
            ears: queue.ears.clone(),
            due: queue.due.clone(),
        };
        tasks.spawn("queue", writer.run(coming, tasks.stopping()));
        Ok(Arc::new(queue))
    }

    /// The holder's work: leases and deadlines that run out, and what is too old to keep.
    pub async fn tend(self: Arc<Self>, keep: Duration, stop: CancellationToken) {
        self.tend_until(keep, stop).await;
    }

    /// Counts whenever something of this happens, and now and then when nothing does. Subscribe before you look.
    pub fn listen(&self, topic: &Topic) -> watch::Receiver<u64> {
        self.bell.listen(topic)
    }

    async fn ask<C: Change>(&self, what: C) -> Result<C::Done, QueueError> {
        let (asked, answer) = Asked::new(what);
        self.inbox.send(Op::Step(Box::new(asked))).await.map_err(|_| QueueError::Ending)?;
        answer.await.map_err(|_| QueueError::Ending)?
    }

    pub async fn send(&self, task: NewTask) -> Result<Sent, QueueError> {
        let (asked, answer) = Asked::new(send::Sending::new(task));
        self.inbox.send(Op::Send(Box::new(asked))).await.map_err(|_| QueueError::Ending)?;
        answer.await.map_err(|_| QueueError::Ending)?
    }

    /// The next task, if there is one. Marks the target as heard.
    pub async fn claim(&self, claim: Claim) -> Result<Option<Task>, QueueError> {
        // Many wait for the same few tasks: most look in vain, and need not disturb the writer.
        if !self.store.task_waits(&self.home, &claim.target).await?
            && self.unfinished(&claim.target, &claim.claim).await?.is_none()
        {
            self.heard(&claim.target, None).await;
            return Ok(None);
        }
        self.ask(claim::Claiming { claim, only: None }).await
    }

    /// Takes this very task, which is pending: for those who carry it somewhere. None: somebody else has it.
    pub async fn claim_this(&self, task: TaskId, claim: Claim) -> Result<Option<Task>, QueueError> {
        self.ask(claim::Claiming { claim, only: Some(task) }).await
    }

    /// Gives a claimed task back untouched (it could not be carried); the attempt does not count.
    pub async fn give_back(&self, task: TaskId, claim: &str) -> Result<(), QueueError> {
        self.ask(claim::GiveBack { task, claim: claim.to_owned() }).await
    }

    /// Renews leases, and tells where the claims stand. Unknown ones are left out. Marks the target as heard.
    pub async fn beat(&self, target: &Arc<str>, claims: &[String]) -> Result<Vec<Held>, QueueError> {
        // Whoever waits for a cancel looks often: only what has to be written goes to the writer.
        match self.look_at(target, claims).await {
            Err(error) => {
                self.ears.miss();
                Err(error)
            }
            Ok(Some(held)) => {
                self.heard(target, None).await;
                Ok(held)
            }
            Ok(None) => self.ask(claim::Beat { target: target.clone(), claims: claims.to_vec() }).await,
        }
    }

    /// A key that serves a target looks: that renews the leases of what it has, but for those of programs, which beat.
    pub async fn seen(&self, target: &Arc<str>, by: &str) -> Result<(), QueueError> {
        let claims = self.spoken_claims(target, by).await?;
        self.beat(target, &claims).await.map(drop)
    }

    pub async fn report(&self, report: Report) -> Result<Reported, QueueError> {
        self.ask(report).await
    }

    /// Something said by a target's agent that belongs to no task.
    pub async fn note(
        &self,
        target: &Arc<str>,
        kind: Kind,
        content: String,
        source: Option<String>,
    ) -> Result<i64, QueueError> {
        self.ask(report::Note { target: target.clone(), kind, content, source }).await
    }

    /// To the question of that number, and to no other.
    pub async fn answer(&self, task: TaskId, question: i64, answer: String, by: &str) -> Result<Task, QueueError> {
        let answered = self.ask(settle::Answer { task, question, answer }).await?;
        debug!(%task, by, "{task} was answered by {by}");
        Ok(answered)
    }

    pub async fn cancel(&self, task: TaskId, why: String) -> Result<Task, QueueError> {
        self.ask(settle::End { task, act: Act::Cancel, kind: Kind::Cancelled, why }).await
    }

    /// Gives a task up, which could not be carried.
    pub async fn give_up(&self, task: TaskId, why: String) -> Result<Task, QueueError> {
        let given_up = self.ask(settle::End { task, act: Act::GiveUp, kind: Kind::Dead, why: why.clone() }).await?;
        self.witness.note(&format!("{task} is dead: {why}"));
        Ok(given_up)
    }

    pub async fn retry(&self, task: TaskId, by: &str) -> Result<Task, QueueError> {
        self.ask(settle::Retry { task, by: by.to_owned() }).await
    }

    /// A channel works, or does not. Kept for all processes; cheap to call often.
    pub async fn heard(&self, name: &str, trouble: Option<String>) {
        if !self.ears.hear(name, trouble.as_deref(), self.clock.now_ms()) {
            return;
        }
        if let Err(error) = self.ask(keep::Heard { name: name.to_owned(), trouble }).await {
            self.ears.untold(name);
            debug!(error = %Chain(&error), "that `{name}` was heard is not kept");
        }
    }

    /// Durable when it comes back. Never moves back.
    pub async fn move_bookmark(
        &self,
        principal: &str,
        target: Option<&str>,
        task: Option<TaskId>,
        seq: i64,
    ) -> Result<(), QueueError> {
        let (principal, target) = (principal.to_owned(), target.unwrap_or_default().to_owned());
        self.ask(keep::MoveBookmark { principal, target, task: task.map_or(0, |task| task.0), seq }).await
    }

    /// A message of a Telegram chat is about a task, and about one question of it where it asks that.
    pub async fn telegram_sent(
        &self,
        chat: i64,
        message: i64,
        task: TaskId,
        question: Option<i64>,
    ) -> Result<(), QueueError> {
        self.ask(keep::TelegramSent { chat, message, task, question }).await
    }
}

#[cfg(test)]
mod bench;
#[cfg(test)]
mod tests;
