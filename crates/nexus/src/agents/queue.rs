//! The queue of every target, kept in the store. All changes go through one writer, which commits many at a time.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use nexus_core::tasks::Tasks;

use super::task::{Kind, Priority, Status, Task, TaskId, Update};
use crate::store::{Store, StoreError};

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
    pub priority: Priority,
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

#[derive(Debug)]
pub struct Queue {}

#[allow(unused_variables, clippy::todo, clippy::unused_async, reason = "being written")]
impl Queue {
    /// Starts the writer and listens for other processes of the data folder.
    pub fn start(store: Store, home: &str, data: &std::path::Path, tasks: &Tasks) -> std::io::Result<Arc<Self>> {
        todo!()
    }

    /// The holder's work: leases and deadlines that run out, and what is too old to keep.
    pub async fn tend(self: Arc<Self>, keep: Duration, stop: CancellationToken) {
        todo!()
    }

    /// Counts whenever something of this happens. Subscribe before you look.
    pub fn listen(&self, topic: &Topic) -> watch::Receiver<u64> {
        todo!()
    }

    pub async fn send(&self, task: NewTask) -> Result<Sent, QueueError> {
        todo!()
    }

    /// The next task, if there is one. Marks the target as heard.
    pub async fn claim(&self, claim: Claim) -> Result<Option<Task>, QueueError> {
        todo!()
    }

    /// Takes this very task, which is pending: for those who carry it somewhere. None: somebody else has it.
    pub async fn claim_this(&self, task: TaskId, claim: Claim) -> Result<Option<Task>, QueueError> {
        todo!()
    }

    /// Gives a claimed task back untouched (it could not be carried); the attempt does not count.
    pub async fn give_back(&self, task: TaskId, claim: &str) -> Result<(), QueueError> {
        todo!()
    }

    /// Renews leases, and tells where the claims stand. Unknown ones are left out. Marks the target as heard.
    pub async fn beat(&self, target: &Arc<str>, claims: &[String]) -> Result<Vec<Held>, QueueError> {
        todo!()
    }

    pub async fn report(&self, report: Report) -> Result<Reported, QueueError> {
        todo!()
    }

    /// Something said by a target's agent that belongs to no task.
    pub async fn note(
        &self,
        target: &Arc<str>,
        kind: Kind,
        content: String,
        source: Option<String>,
    ) -> Result<i64, QueueError> {
        todo!()
    }

    pub async fn answer(&self, task: TaskId, answer: String, by: &str) -> Result<Task, QueueError> {
        todo!()
    }

    pub async fn cancel(&self, task: TaskId, why: String) -> Result<Task, QueueError> {
        todo!()
    }

    /// Gives a task up, which could not be carried.
    pub async fn give_up(&self, task: TaskId, why: String) -> Result<Task, QueueError> {
        todo!()
    }

    pub async fn retry(&self, task: TaskId, by: &str) -> Result<Task, QueueError> {
        todo!()
    }

    /// A channel works, or does not. Kept for all processes; cheap to call often.
    pub async fn heard(&self, name: &str, trouble: Option<String>) {
        todo!()
    }

    pub async fn task(&self, id: TaskId) -> Result<Option<Task>, QueueError> {
        todo!()
    }

    pub async fn tasks(&self, chosen: &Chosen) -> Result<Vec<Task>, QueueError> {
        todo!()
    }

    /// The waiting tasks of a target, in the order in which they will be claimed.
    pub async fn next(&self, target: &str, limit: i64) -> Result<Vec<Task>, QueueError> {
        todo!()
    }

    /// The claimed and unfinished tasks of a target, oldest first.
    pub async fn running(&self, target: &str) -> Result<Vec<Task>, QueueError> {
        todo!()
    }

    /// When the oldest waiting task of a target was sent.
    pub async fn oldest_pending(&self, target: &str) -> Result<Option<Timestamp>, QueueError> {
        todo!()
    }

    /// In order of number.
    pub async fn updates(&self, wanted: &Wanted) -> Result<Vec<Update>, QueueError> {
        todo!()
    }

    /// The first answer behind a question.
    pub async fn answer_to(&self, task: TaskId, question: i64) -> Result<Option<Update>, QueueError> {
        todo!()
    }

    pub async fn last_update(&self) -> Result<i64, QueueError> {
        todo!()
    }

    pub async fn counts(&self) -> Result<Vec<Count>, QueueError> {
        todo!()
    }

    pub async fn channels(&self) -> Result<Vec<Channel>, QueueError> {
        todo!()
    }

    /// How far this key has read, for this choice. None: never.
    pub async fn bookmark(
        &self,
        principal: &str,
        target: Option<&str>,
        task: Option<TaskId>,
    ) -> Result<Option<i64>, QueueError> {
        todo!()
    }

    /// Durable when it comes back. Never moves back.
    pub async fn move_bookmark(
        &self,
        principal: &str,
        target: Option<&str>,
        task: Option<TaskId>,
        seq: i64,
    ) -> Result<(), QueueError> {
        todo!()
    }

    /// A message of a Telegram chat is about a task.
    pub async fn telegram_sent(&self, chat: i64, message: i64, task: TaskId) -> Result<(), QueueError> {
        todo!()
    }

    pub async fn telegram_task(&self, chat: i64, message: i64) -> Result<Option<TaskId>, QueueError> {
        todo!()
    }
}
