//! Small things that are kept: how far somebody has read, what was heard, which message is about which task.

use std::collections::BTreeSet;

use super::batch::Batch;
use super::writer::Change;
use super::{Queue, QueueError};
use crate::agents::task::TaskId;

#[derive(Debug)]
pub struct MoveBookmark {
    pub principal: String,
    pub target: String,
    pub task: i64,
    pub seq: i64,
}

impl Change for MoveBookmark {
    type Done = ();

    async fn make(&self, batch: &mut Batch<'_>) -> Result<(), QueueError> {
        let choice = (self.target.as_str(), self.task);
        Ok(batch.tx.move_bookmark(batch.home, &self.principal, choice, self.seq).await?)
    }
}

#[derive(Debug)]
pub struct Heard {
    pub name: String,
    pub trouble: Option<String>,
}

impl Change for Heard {
    type Done = ();

    async fn make(&self, batch: &mut Batch<'_>) -> Result<(), QueueError> {
        let at = self.trouble.is_none().then(|| batch.now.as_millisecond());
        Ok(batch.tx.heard(batch.home, &self.name, at, self.trouble.as_deref()).await?)
    }
}

impl Queue {
    /// Forgets when those were heard who are not among these any more.
    pub async fn keep_channels(&self, known: &BTreeSet<&str>) -> Result<(), QueueError> {
        for channel in self.channels().await? {
            if !known.contains(&*channel.name) {
                self.ask(Forget { name: channel.name }).await?;
            }
        }
        Ok(())
    }
}

/// Nobody of this name is heard any more, or asked for.
#[derive(Debug)]
pub struct Forget {
    pub name: String,
}

impl Change for Forget {
    type Done = ();

    async fn make(&self, batch: &mut Batch<'_>) -> Result<(), QueueError> {
        batch.ears.forget(&self.name);
        Ok(batch.tx.forget_channel(batch.home, &self.name).await?)
    }
}

#[derive(Debug)]
pub struct TelegramSent {
    pub chat: i64,
    pub message: i64,
    pub task: TaskId,
    pub question: Option<i64>,
}

impl Change for TelegramSent {
    type Done = ();

    async fn make(&self, batch: &mut Batch<'_>) -> Result<(), QueueError> {
        let place = (self.chat, self.message);
        Ok(batch.tx.telegram_sent(batch.home, place, self.task.0, self.question).await?)
    }
}
