//! What the queue promises, on both databases: the same cases, the same text. The clock is the test's own.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering};

use futures_util::future::join_all;
use tempfile::TempDir;
use tokio::time::timeout;

use super::tend::{Grace, Prune, Sweep};
use super::*;
use crate::agents::task::Update;
use crate::store::tasks::CountRow;
use crate::store::tests::own_database;

mod carried;
mod kept;
mod life;
mod model;
mod outage;
mod questions;
mod several;

/// A queue with a clock that stands still.
#[derive(Debug)]
struct Desk {
    queue: Arc<Queue>,
    store: Store,
    folder: TempDir,
    tasks: Tasks,
    at: Arc<AtomicI64>,
}

const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE: Duration = Duration::from_secs(60);

impl Desk {
    async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), None).await.unwrap();
        Self::of(store, folder)
    }

    async fn postgres() -> Self {
        Self::of(own_database().await, tempfile::tempdir().unwrap())
    }

    fn of(store: Store, folder: TempDir) -> Self {
        let (tasks, at) = (Tasks::new(), Arc::new(AtomicI64::new(1_900_000_000_000)));
        let clock = Clock::Set(at.clone());
        let queue = Queue::start_at(clock, store.clone(), "home", folder.path(), &tasks).unwrap();
        Self { queue, store, folder, tasks, at }
    }

    /// Another process of the same data folder.
    fn another(&self) -> Arc<Queue> {
        let clock = Clock::Set(self.at.clone());
        Queue::start_at(clock, self.store.clone(), "home", self.folder.path(), &self.tasks).unwrap()
    }

    fn pass(&self, time: Duration) {
        self.at.fetch_add(i64::try_from(time.as_millis()).unwrap(), Ordering::Relaxed);
    }

    async fn sweep(&self) {
        self.queue.ask(Sweep).await.unwrap();
    }

    async fn sent(&self, content: &str) -> TaskId {
        match self.queue.send(message(content)).await.unwrap() {
            Sent::Queued { id, .. } => id,
            Sent::Duplicate { id } => panic!("{content} is a duplicate of {id}"),
        }
    }

    async fn claimed(&self, claim: &str) -> Option<Task> {
        self.queue.claim(by(claim, Lease::Beats(MINUTE))).await.unwrap()
    }

    async fn says(&self, task: TaskId, claim: &str, saying: Saying) -> Result<Reported, QueueError> {
        self.queue.report(report(task, claim, saying)).await
    }

    async fn asked(&self, id: TaskId, claim: &str, question: i64) -> Result<(Status, Option<String>), QueueError> {
        self.queue.asked(id, question, &report(id, claim, Saying::Ask).who).await
    }

    async fn status(&self, id: TaskId) -> Status {
        self.task(id).await.status
    }

    async fn task(&self, id: TaskId) -> Task {
        self.queue.task(id).await.unwrap().unwrap()
    }

    async fn updates(&self) -> Vec<Update> {
        self.queue.updates(&Wanted { limit: 10_000, ..Wanted::default() }).await.unwrap()
    }

    /// What was said of a task: the kinds.
    async fn kinds(&self, id: TaskId) -> Vec<&'static str> {
        let wanted = Wanted { task: Some(id), limit: 1_000, ..Wanted::default() };
        self.queue.updates(&wanted).await.unwrap().iter().map(|update| update.kind.as_str()).collect()
    }

    async fn assert_counts(&self) {
        type Counts = BTreeMap<(String, String, i64), i64>;
        let counts = |rows: Vec<CountRow>| -> Counts {
            rows.into_iter().map(|row| ((row.target, row.status, row.priority), row.n)).collect()
        };
        let kept = counts(self.store.task_counts("home").await.unwrap());
        let real = counts(self.store.recount("home").await);
        assert_eq!(kept, real);
    }
}

fn message(content: &str) -> NewTask {
    NewTask {
        target: "homelab".into(),
        content: content.to_owned(),
        priority: Priority::Normal,
        deadline: None,
        max_attempts: 1,
        idempotency_key: None,
        sender: "model".to_owned(),
    }
}

fn by(claim: &str, lease: Lease) -> Claim {
    Claim { target: "homelab".into(), claim: claim.to_owned(), by: "worker".to_owned(), lease }
}

fn report(task: TaskId, claim: &str, saying: Saying) -> Report {
    let who = Who::Claimer { claim: Some(claim.to_owned()), by: "worker".to_owned() };
    Report { task, who, saying, content: "words".to_owned(), exit_code: None, source: None }
}

/// Nothing here takes long; a test that hangs must end.
async fn within<F: Future>(work: F) -> F::Output {
    timeout(Duration::from_secs(60), work).await.expect("not within a minute")
}

/// Runs a case on SQLite and on a database of its own in the PostgreSQL that `./test` has started.
macro_rules! on_both {
    ($($name:ident)*) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::within(super::$name(super::Desk::sqlite().await)).await;
            })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                super::within(super::$name(super::Desk::postgres().await)).await;
            })*
        }
    };
}
use on_both;
