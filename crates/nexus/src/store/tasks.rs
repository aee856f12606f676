//! The tasks of a hub's agents: their rows, their numbers and their counts.

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use sqlx::FromRow;

#[cfg(test)]
use super::Store;
use super::StoreError;
use super::bulk::Bulk;
use super::tx::{Tx, Value};
use crate::agents::task::{Priority, Status, Task, TaskId};

macro_rules! tasks {
    ($rest:literal) => {
        concat!(
            "SELECT number, target, content, content_hash, priority, status, sender, idempotency_key, max_attempts, \
             attempts, created_ms, deadline_ms, acknowledged_ms, started_ms, completed_ms, claim, claimed_by, \
             lease_ms, lease_until_ms, beats, question, result, exit_code, reason FROM task WHERE home = $1 ",
            $rest
        )
    };
}

/// The same for lists: of long words only the beginning, and no result.
macro_rules! beginnings {
    ($rest:literal) => {
        concat!(
            "SELECT number, target, substr(content, 1, 2000) AS content, content_hash, priority, status, sender, \
             idempotency_key, max_attempts, attempts, created_ms, deadline_ms, acknowledged_ms, started_ms, \
             completed_ms, claim, claimed_by, lease_ms, lease_until_ms, beats, question, CAST(NULL AS TEXT) AS result, \
             exit_code, substr(reason, 1, 2000) AS reason FROM task WHERE home = $1 ",
            $rest
        )
    };
}

#[cfg(test)]
mod filled;
mod known;
mod look;
pub mod prune;
pub mod said;

/// A task with what only the queue needs of it.
#[derive(Clone, Debug)]
pub struct Kept {
    pub task: Task,
    pub hash: Vec<u8>,
    /// How long its claim holds after a word. None: it is not taken away.
    pub lease_ms: Option<i64>,
    /// Its claimer is heard all the time, also while it waits for an answer.
    pub beats: bool,
}

/// A new, pending task.
#[derive(Clone, Copy, Debug)]
pub struct Fresh<'a> {
    pub number: i64,
    pub target: &'a str,
    pub content: &'a str,
    pub hash: &'a [u8],
    pub priority: Priority,
    pub sender: &'a str,
    pub idempotency_key: Option<&'a str>,
    pub max_attempts: i64,
    pub created_ms: i64,
    pub deadline_ms: Option<i64>,
}

/// The last numbers of a hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    pub task: i64,
    pub update: i64,
}

/// How many tasks of a kind there are.
#[derive(Clone, Debug, FromRow)]
pub struct CountRow {
    pub target: String,
    pub status: String,
    pub priority: i64,
    pub n: i64,
}

#[derive(Debug, FromRow)]
struct TaskRow {
    number: i64,
    target: String,
    content: String,
    content_hash: Vec<u8>,
    priority: i64,
    status: String,
    sender: String,
    idempotency_key: Option<String>,
    max_attempts: i64,
    attempts: i64,
    created_ms: i64,
    deadline_ms: Option<i64>,
    acknowledged_ms: Option<i64>,
    started_ms: Option<i64>,
    completed_ms: Option<i64>,
    claim: Option<String>,
    claimed_by: Option<String>,
    lease_ms: Option<i64>,
    lease_until_ms: Option<i64>,
    beats: i64,
    question: Option<i64>,
    result: Option<String>,
    exit_code: Option<i64>,
    reason: Option<String>,
}

impl TaskRow {
    fn kept(self) -> Result<Kept, StoreError> {
        let bad = |what| StoreError::BadTask { number: self.number, what };
        let at = |ms: i64| Timestamp::from_millisecond(ms).map_err(|_| bad("time"));
        let maybe = |ms: Option<i64>| ms.map(at).transpose();
        let task = Task {
            id: TaskId(self.number),
            priority: Priority::of_rank(self.priority).ok_or_else(|| bad("priority"))?,
            status: Status::parse(&self.status).ok_or_else(|| bad("status"))?,
            created: at(self.created_ms)?,
            deadline: maybe(self.deadline_ms)?,
            acknowledged: maybe(self.acknowledged_ms)?,
            started: maybe(self.started_ms)?,
            completed: maybe(self.completed_ms)?,
            lease_until: maybe(self.lease_until_ms)?,
            target: self.target.into(),
            content: self.content,
            sender: self.sender,
            idempotency_key: self.idempotency_key,
            max_attempts: self.max_attempts,
            attempts: self.attempts,
            claim: self.claim,
            claimed_by: self.claimed_by,
            question: self.question,
            result: self.result,
            exit_code: self.exit_code,
            reason: self.reason,
        };
        Ok(Kept { task, hash: self.content_hash, lease_ms: self.lease_ms, beats: self.beats != 0 })
    }
}

fn kept(rows: Vec<TaskRow>) -> Result<Vec<Kept>, StoreError> {
    rows.into_iter().map(TaskRow::kept).collect()
}

const ONE: &str = tasks!("AND number = $2");
const OLDEST_OF: &str = tasks!("AND target = $2 AND status = $3 ORDER BY number LIMIT $4");
/// What is late is not begun any more: it is about to be given up.
const NEXT_IN_TIME: &str = tasks!(
    "AND target = $2 AND status = 'pending' AND (deadline_ms IS NULL OR deadline_ms > $3) \
     ORDER BY priority DESC, number LIMIT 1"
);
const CLAIMED: &str = tasks!("AND claim = $2 AND target = $3 AND completed_ms IS NULL LIMIT 1");
const WAS_CLAIMED: &str =
    tasks!("AND claim = $2 AND target = $3 AND completed_ms IS NOT NULL ORDER BY completed_ms DESC LIMIT 1");
const SILENT: &str = tasks!("AND lease_until_ms <= $2 ORDER BY lease_until_ms LIMIT $3");
const LATE: &str = tasks!("AND deadline_ms <= $2 AND completed_ms IS NULL ORDER BY deadline_ms LIMIT $3");

const NUMBERS: &str = "SELECT name, n FROM agent_number WHERE home = $1";
/// Whoever has read these may count on: the others wait here until it is over.
const NUMBERS_LOCKED: &str = "SELECT name, n FROM agent_number WHERE home = $1 ORDER BY name FOR UPDATE";
const FIRST_NUMBERS: &str = "INSERT INTO agent_number (home, name, n) VALUES ($1, 'task', 0), ($1, 'update', 0) \
     ON CONFLICT (home, name) DO NOTHING";
const SET_NUMBER: &str = "UPDATE agent_number SET n = $3 WHERE home = $1 AND name = $2";
const COUNTS_OF: &str = "SELECT target, status, priority, n FROM task_count WHERE home = $1 AND target = $2";
const RENEW: &str = "UPDATE task SET lease_until_ms = $3 WHERE home = $1 AND number = $2";
const RENEW_ALL: &str = "UPDATE task SET lease_until_ms = $2 + lease_ms WHERE home = $1 AND lease_until_ms IS NOT NULL";
const PUT: &str = "UPDATE task SET status = $4, attempts = $5, deadline_ms = $6, acknowledged_ms = $7, started_ms = $8, \
     completed_ms = $9, claim = $10, claimed_by = $11, lease_ms = $12, lease_until_ms = $13, beats = $14, question = $15, \
     result = $16, exit_code = $17, reason = $18 WHERE home = $1 AND number = $2 AND status = $3";
const NEXT_LEASE: &str =
    "SELECT lease_until_ms FROM task WHERE home = $1 AND lease_until_ms IS NOT NULL ORDER BY lease_until_ms LIMIT 1";
const NEXT_DEADLINE: &str = "SELECT deadline_ms FROM task WHERE home = $1 AND deadline_ms IS NOT NULL \
     AND completed_ms IS NULL ORDER BY deadline_ms LIMIT 1";

static ADD: LazyLock<Bulk> = LazyLock::new(|| {
    let columns = "task (home, number, target, content, content_hash, priority, sender, idempotency_key, \
                   max_attempts, created_ms, deadline_ms, status, attempts)";
    Bulk::rows(columns, 11, ",'pending',0", "")
});
static COUNT: LazyLock<Bulk> = LazyLock::new(|| {
    let added = "ON CONFLICT (home, target, status, priority) DO UPDATE SET n = task_count.n + excluded.n";
    Bulk::rows("task_count (home, target, status, priority, n)", 5, "", added)
});
fn numbers(rows: &[(String, i64)]) -> Numbers {
    let number = |wanted: &str| rows.iter().find(|(name, _)| name == wanted).map_or(0, |(_, n)| *n);
    Numbers { task: number("task"), update: number("update") }
}

impl Tx {
    /// The hub's numbers. Whoever has them is the only one who changes the hub's tasks, in any process, to the end of
    /// the transaction.
    pub async fn numbers(&mut self, home: &str) -> Result<Numbers, StoreError> {
        let sql = if self.numbered() { NUMBERS_LOCKED } else { NUMBERS };
        let mut rows: Vec<(String, i64)> = self.find(sql, &[home.into()]).await?;
        if rows.len() < 2 {
            self.execute(FIRST_NUMBERS, &[home.into()]).await?;
            rows = self.find(sql, &[home.into()]).await?;
        }
        Ok(numbers(&rows))
    }

    pub async fn set_numbers(&mut self, home: &str, before: Numbers, now: Numbers) -> Result<(), StoreError> {
        for (name, before, now) in [("task", before.task, now.task), ("update", before.update, now.update)] {
            if before != now {
                self.execute(SET_NUMBER, &[home.into(), name.into(), now.into()]).await?;
            }
        }
        Ok(())
    }

    pub async fn add_tasks(&mut self, home: &str, tasks: &[Fresh<'_>]) -> Result<(), StoreError> {
        let values: Vec<Value<'_>> = tasks
            .iter()
            .flat_map(|task| {
                let key = task.idempotency_key.into();
                let (priority, hash): (Value<'_>, _) = (task.priority.rank().into(), Value::Bytes(task.hash));
                let begin = [home.into(), task.number.into(), task.target.into(), task.content.into(), hash, priority];
                let end: [Value<'_>; 5] = [
                    task.sender.into(),
                    key,
                    task.max_attempts.into(),
                    task.created_ms.into(),
                    task.deadline_ms.into(),
                ];
                begin.into_iter().chain(end)
            })
            .collect();
        self.add(&ADD, &values).await
    }

    /// Adds to the counts.
    pub async fn count_tasks(
        &mut self,
        home: &str,
        changes: &[(Arc<str>, Status, Priority, i64)],
    ) -> Result<(), StoreError> {
        let values: Vec<Value<'_>> = changes
            .iter()
            .flat_map(|(target, status, priority, n)| -> [Value<'_>; 5] {
                [home.into(), (&**target).into(), status.as_str().into(), priority.rank().into(), (*n).into()]
            })
            .collect();
        self.add(&COUNT, &values).await
    }

    pub async fn counts_of(&mut self, home: &str, target: &str) -> Result<Vec<CountRow>, StoreError> {
        self.find(COUNTS_OF, &[home.into(), target.into()]).await
    }

    pub async fn task(&mut self, home: &str, id: TaskId) -> Result<Option<Kept>, StoreError> {
        Ok(kept(self.find(ONE, &[home.into(), id.0.into()]).await?)?.pop())
    }

    /// The one to do next, unless its time is over.
    pub async fn next_task(&mut self, home: &str, target: &str, now_ms: i64) -> Result<Option<Kept>, StoreError> {
        Ok(kept(self.find(NEXT_IN_TIME, &[home.into(), target.into(), now_ms.into()]).await?)?.pop())
    }

    /// The unfinished task of a claim; else the one that was finished last.
    pub async fn claimed(&mut self, home: &str, target: &str, claim: &str) -> Result<Option<Kept>, StoreError> {
        for sql in [CLAIMED, WAS_CLAIMED] {
            let found = kept(self.find(sql, &[home.into(), claim.into(), target.into()]).await?)?.pop();
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The claimed and unfinished tasks of a target, oldest first.
    pub async fn running_tasks(&mut self, home: &str, target: &str, most: i64) -> Result<Vec<Kept>, StoreError> {
        let mut running = Vec::new();
        for status in Status::ALL.iter().filter(|status| status.is_running()) {
            let values = [home.into(), target.into(), status.as_str().into(), most.into()];
            running.extend(kept(self.find(OLDEST_OF, &values).await?)?);
        }
        running.sort_unstable_by_key(|kept| kept.task.id);
        Ok(running)
    }

    /// Tasks whose claimer has been silent for too long.
    pub async fn silent_tasks(&mut self, home: &str, now_ms: i64, most: i64) -> Result<Vec<Kept>, StoreError> {
        kept(self.find(SILENT, &[home.into(), now_ms.into(), most.into()]).await?)
    }

    /// Unfinished tasks whose time is over.
    pub async fn late_tasks(&mut self, home: &str, now_ms: i64, most: i64) -> Result<Vec<Kept>, StoreError> {
        kept(self.find(LATE, &[home.into(), now_ms.into(), most.into()]).await?)
    }

    /// When the next lease or deadline runs out.
    pub async fn next_due(&mut self, home: &str) -> Result<Option<i64>, StoreError> {
        let mut due = None;
        for sql in [NEXT_LEASE, NEXT_DEADLINE] {
            let rows: Vec<(i64,)> = self.find(sql, &[home.into()]).await?;
            due = due.into_iter().chain(rows.first().map(|(at,)| *at)).min();
        }
        Ok(due)
    }

    /// Writes a task that stood at `from` so far.
    pub async fn put_task(&mut self, home: &str, from: Status, kept: &Kept) -> Result<(), StoreError> {
        let task = &kept.task;
        let ms = |at: Option<Timestamp>| Value::Int(at.map(Timestamp::as_millisecond));
        let values: [Value<'_>; 18] = [
            home.into(),
            task.id.0.into(),
            from.as_str().into(),
            task.status.as_str().into(),
            task.attempts.into(),
            ms(task.deadline),
            ms(task.acknowledged),
            ms(task.started),
            ms(task.completed),
            task.claim.as_deref().into(),
            task.claimed_by.as_deref().into(),
            kept.lease_ms.into(),
            ms(task.lease_until),
            i64::from(kept.beats).into(),
            task.question.into(),
            task.result.as_deref().into(),
            task.exit_code.into(),
            task.reason.as_deref().into(),
        ];
        match self.execute(PUT, &values).await? {
            1 => Ok(()),
            _ => Err(StoreError::Raced { number: task.id.0 }),
        }
    }

    pub async fn renew_lease(&mut self, home: &str, id: TaskId, until_ms: Option<i64>) -> Result<(), StoreError> {
        self.execute(RENEW, &[home.into(), id.0.into(), until_ms.into()]).await?;
        Ok(())
    }

    /// Every lease begins anew.
    pub async fn renew_all(&mut self, home: &str, now_ms: i64) -> Result<(), StoreError> {
        self.execute(RENEW_ALL, &[home.into(), now_ms.into()]).await?;
        Ok(())
    }
}

#[cfg(test)]
impl Store {
    /// What the counts must be.
    pub async fn recount(&self, home: &str) -> Vec<CountRow> {
        const RECOUNT: &str = "SELECT target, status, priority, COUNT(*) AS n FROM task WHERE home = $1 \
             GROUP BY target, status, priority";
        self.find(RECOUNT, &[home.into()]).await.unwrap()
    }
}
