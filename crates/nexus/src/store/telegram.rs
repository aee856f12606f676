//! What the Telegram bot looks up in the store: what happened to tasks since it last looked, and where they were posted.

use super::{Store, StoreError};

/// What is told in chats; all else is left to `pull_updates`.
const HAPPENED: &str = "
    SELECT seq, task, kind FROM task_update WHERE home = $1 AND seq > $2 AND seq <= $3 AND task IS NOT NULL
        AND kind IN ('question', 'answer', 'complete', 'error', 'cancelled', 'dead')
    ORDER BY seq LIMIT 100";
const POSTED: &str =
    "SELECT message FROM telegram_message WHERE home = $1 AND task = $2 AND chat = $3 ORDER BY message LIMIT 1";

const QUESTION: &str = "
    SELECT seq FROM task_update WHERE home = $1 AND task = $2 AND seq < $3 AND kind = 'question'
    ORDER BY seq DESC LIMIT 1";
const ASKED: &str = "
    SELECT message FROM telegram_message WHERE home = $1 AND task = $2 AND chat = $3 AND question = $4
    ORDER BY message LIMIT 1";

/// The number of an update, its task, and what kind it is.
pub type Happened = (i64, i64, String);

impl Store {
    /// The next hundred of interest behind `after`, up to `upto`.
    pub async fn happened(&self, home: &str, after: i64, upto: i64) -> Result<Vec<Happened>, StoreError> {
        Ok(on_db!(self, |db| sqlx::query_as(HAPPENED).bind(home).bind(after).bind(upto).fetch_all(db).await?))
    }

    /// The first message about a task in a chat.
    pub async fn posted(&self, home: &str, task: i64, chat: i64) -> Result<Option<i64>, StoreError> {
        Ok(on_db!(self, |db| sqlx::query_scalar(POSTED).bind(home).bind(task).bind(chat).fetch_optional(db).await?))
    }

    /// The question that an answer is to: the last one before it.
    pub async fn question_of(&self, home: &str, task: i64, answer: i64) -> Result<Option<i64>, StoreError> {
        Ok(on_db!(self, |db| sqlx::query_scalar(QUESTION)
            .bind(home)
            .bind(task)
            .bind(answer)
            .fetch_optional(db)
            .await?))
    }

    /// The message that asks a question in a chat.
    pub async fn asked(&self, home: &str, task: i64, chat: i64, question: i64) -> Result<Option<i64>, StoreError> {
        Ok(on_db!(self, |db| {
            sqlx::query_scalar(ASKED).bind(home).bind(task).bind(chat).bind(question).fetch_optional(db).await?
        }))
    }
}
