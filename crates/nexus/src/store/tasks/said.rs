//! What agents said, how far it was read, and where they are heard.

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use sqlx::FromRow;

use crate::agents::task::{Kind, TaskId, Update};
use crate::store::bulk::Bulk;
use crate::store::tx::{Tx, Value};
use crate::store::{Store, StoreError};

/// An update that is to be kept.
#[derive(Clone, Debug)]
pub struct NewUpdate {
    pub seq: i64,
    pub task: Option<TaskId>,
    pub target: Arc<str>,
    pub kind: Kind,
    pub content: String,
    pub created_ms: i64,
    pub source: Option<String>,
}

/// Which updates are looked for.
#[derive(Clone, Copy, Debug)]
pub struct Where<'a> {
    pub after: i64,
    pub since_ms: Option<i64>,
    pub target: Option<&'a str>,
    pub task: Option<i64>,
    pub limit: i64,
}

/// When something was heard last.
#[derive(Clone, Debug, FromRow)]
pub struct ChannelRow {
    pub name: String,
    pub heard_ms: Option<i64>,
    pub trouble: Option<String>,
}

#[derive(Debug, FromRow)]
struct UpdateRow {
    seq: i64,
    task: Option<i64>,
    target: String,
    kind: String,
    content: String,
    created_ms: i64,
}

impl UpdateRow {
    fn update(self) -> Result<Update, StoreError> {
        let bad = |what| StoreError::BadTask { number: self.task.unwrap_or_default(), what };
        Ok(Update {
            seq: self.seq,
            task: self.task.map(TaskId),
            target: self.target.into(),
            kind: Kind::parse(&self.kind).ok_or_else(|| bad("kind of update"))?,
            content: self.content,
            created: Timestamp::from_millisecond(self.created_ms).map_err(|_| bad("time of an update"))?,
        })
    }
}

macro_rules! updates {
    ($rest:literal) => {
        concat!("SELECT seq, task, target, kind, content, created_ms FROM task_update WHERE home = $1 ", $rest)
    };
}

// A choice that is not made must not keep an index from being used: each has a text of its own.
const ALL: &str = updates!("AND seq > $2 AND created_ms >= $3 ORDER BY seq LIMIT $4");
const OF_TARGET: &str = updates!("AND seq > $2 AND created_ms >= $3 AND target = $5 ORDER BY seq LIMIT $4");
const OF_TASK: &str = updates!("AND seq > $2 AND created_ms >= $3 AND task = $5 ORDER BY seq LIMIT $4");
/// A task has few updates, a target many: the target's index is not to be used.
const OF_BOTH: &str =
    updates!("AND seq > $2 AND created_ms >= $3 AND task = $5 AND target || '' = $6 ORDER BY seq LIMIT $4");
/// What is said behind another question, or to whoever has claimed the task since, is no answer to this one.
const ANSWER: &str =
    updates!("AND task = $2 AND seq > $3 AND kind IN ('answer', 'question', 'acknowledged') ORDER BY seq LIMIT 1");
const LAST: &str = updates!("AND task = $2 ORDER BY seq DESC LIMIT $3");
/// The first that is not older. Where the clock was set back, a later one may be.
const FIRST_SINCE: &str = "SELECT seq FROM task_update WHERE home = $1 AND peak_ms >= $2 ORDER BY peak_ms, seq LIMIT 1";
const PEAK: &str = "SELECT peak_ms FROM task_update WHERE home = $1 ORDER BY seq DESC LIMIT 1";
const BY_SOURCE: &str = "SELECT seq FROM task_update WHERE home = $1 AND source = $2";

const BOOKMARK: &str = "SELECT seq FROM bookmark WHERE home = $1 AND principal = $2 AND target = $3 AND task = $4";
const MOVE_BOOKMARK: &str = "INSERT INTO bookmark (home, principal, target, task, seq) VALUES ($1, $2, $3, $4, $5) \
     ON CONFLICT (home, principal, target, task) DO UPDATE SET seq = excluded.seq WHERE bookmark.seq < excluded.seq";
const CHANNELS: &str = "SELECT name, heard_ms, trouble FROM channel WHERE home = $1 ORDER BY name";
const HEARD: &str = "INSERT INTO channel (home, name, heard_ms, trouble) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (home, name) DO UPDATE SET heard_ms = COALESCE(excluded.heard_ms, channel.heard_ms), \
     trouble = excluded.trouble";
const FORGET: &str = "DELETE FROM channel WHERE home = $1 AND name = $2";
const TELEGRAM_SENT: &str = "INSERT INTO telegram_message (home, chat, message, task, question) \
     VALUES ($1, $2, $3, $4, $5) \
     ON CONFLICT (home, chat, message) DO UPDATE SET task = excluded.task, question = excluded.question";
const TELEGRAM_TASK: &str =
    "SELECT task, question FROM telegram_message WHERE home = $1 AND chat = $2 AND message = $3";

static ADD: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::rows("task_update (home, seq, task, target, kind, content, created_ms, source, peak_ms)", 9, "", "")
});

impl Tx {
    pub async fn add_updates(&mut self, home: &str, updates: &[NewUpdate]) -> Result<(), StoreError> {
        if updates.is_empty() {
            return Ok(());
        }
        let last: Vec<(i64,)> = self.find(PEAK, &[home.into()]).await?;
        let mut peak = last.first().map_or(i64::MIN, |(peak,)| *peak);
        let values: Vec<Value<'_>> = updates
            .iter()
            .flat_map(|update| -> [Value<'_>; 9] {
                peak = peak.max(update.created_ms);
                [
                    home.into(),
                    update.seq.into(),
                    update.task.map(|task| task.0).into(),
                    (&*update.target).into(),
                    update.kind.as_str().into(),
                    update.content.as_str().into(),
                    update.created_ms.into(),
                    update.source.as_deref().into(),
                    peak.into(),
                ]
            })
            .collect();
        self.add(&ADD, &values).await
    }

    /// The update that was taken under this name.
    pub async fn update_of(&mut self, home: &str, source: &str) -> Result<Option<i64>, StoreError> {
        let rows: Vec<(i64,)> = self.find(BY_SOURCE, &[home.into(), source.into()]).await?;
        Ok(rows.first().map(|(seq,)| *seq))
    }

    pub async fn move_bookmark(
        &mut self,
        home: &str,
        principal: &str,
        (target, task): (&str, i64),
        seq: i64,
    ) -> Result<(), StoreError> {
        let values = [home.into(), principal.into(), target.into(), task.into(), seq.into()];
        self.execute(MOVE_BOOKMARK, &values).await?;
        Ok(())
    }

    /// A channel was heard, or is in trouble. Without a time the last one stays.
    pub async fn heard(
        &mut self,
        home: &str,
        name: &str,
        heard_ms: Option<i64>,
        trouble: Option<&str>,
    ) -> Result<(), StoreError> {
        self.execute(HEARD, &[home.into(), name.into(), heard_ms.into(), trouble.into()]).await?;
        Ok(())
    }

    pub async fn forget_channel(&mut self, home: &str, name: &str) -> Result<(), StoreError> {
        self.execute(FORGET, &[home.into(), name.into()]).await?;
        Ok(())
    }

    /// A message is about a task, and about one question of it where it asks that.
    pub async fn telegram_sent(
        &mut self,
        home: &str,
        (chat, message): (i64, i64),
        task: i64,
        question: Option<i64>,
    ) -> Result<(), StoreError> {
        let values = [home.into(), chat.into(), message.into(), task.into(), question.into()];
        self.execute(TELEGRAM_SENT, &values).await?;
        Ok(())
    }
}

impl Store {
    /// In order of number.
    pub async fn updates(&self, home: &str, wanted: Where<'_>) -> Result<Vec<Update>, StoreError> {
        let mut after = wanted.after;
        if let Some(since) = wanted.since_ms {
            let first: Vec<(i64,)> = self.find(FIRST_SINCE, &[home.into(), since.into()]).await?;
            let Some((first,)) = first.first() else { return Ok(Vec::new()) };
            after = after.max(first - 1);
        }
        let since = wanted.since_ms.unwrap_or(i64::MIN);
        let mut values: Vec<Value<'_>> = vec![home.into(), after.into(), since.into(), wanted.limit.into()];
        values.extend(wanted.task.map(Value::from));
        values.extend(wanted.target.map(Value::from));
        let sql = match (wanted.task, wanted.target) {
            (None, None) => ALL,
            (None, Some(_)) => OF_TARGET,
            (Some(_), None) => OF_TASK,
            (Some(_), Some(_)) => OF_BOTH,
        };
        let rows: Vec<UpdateRow> = self.find(sql, &values).await?;
        rows.into_iter().map(UpdateRow::update).collect()
    }

    /// The last ones of a task, newest first.
    pub async fn last_updates(&self, home: &str, task: TaskId, most: i64) -> Result<Vec<Update>, StoreError> {
        let rows: Vec<UpdateRow> = self.find(LAST, &[home.into(), task.0.into(), most.into()]).await?;
        rows.into_iter().map(UpdateRow::update).collect()
    }

    /// The answer to a question.
    pub async fn answer_to(&self, home: &str, task: TaskId, question: i64) -> Result<Option<Update>, StoreError> {
        let mut rows: Vec<UpdateRow> = self.find(ANSWER, &[home.into(), task.0.into(), question.into()]).await?;
        let next = rows.pop().map(UpdateRow::update).transpose()?;
        Ok(next.filter(|next| next.kind == Kind::Answer))
    }

    pub async fn bookmark(
        &self,
        home: &str,
        principal: &str,
        (target, task): (&str, i64),
    ) -> Result<Option<i64>, StoreError> {
        let values = [home.into(), principal.into(), target.into(), task.into()];
        let rows: Vec<(i64,)> = self.find(BOOKMARK, &values).await?;
        Ok(rows.first().map(|(seq,)| *seq))
    }

    pub async fn channels(&self, home: &str) -> Result<Vec<ChannelRow>, StoreError> {
        self.find(CHANNELS, &[home.into()]).await
    }

    /// The task that a message is about, and the question that it asks.
    pub async fn telegram_task(
        &self,
        home: &str,
        chat: i64,
        message: i64,
    ) -> Result<Option<(TaskId, Option<i64>)>, StoreError> {
        let rows: Vec<(i64, Option<i64>)> =
            self.find(TELEGRAM_TASK, &[home.into(), chat.into(), message.into()]).await?;
        Ok(rows.first().map(|(task, question)| (TaskId(*task), *question)))
    }
}
