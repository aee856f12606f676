//! Small things that are kept: how far somebody has read, what was heard, which message is about which task.

use super::QueueError;
use super::batch::Batch;
use super::writer::Change;
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

#[derive(Debug)]
pub struct TelegramSent {
    pub chat: i64,
    pub message: i64,
    pub task: TaskId,
}

impl Change for TelegramSent {
    type Done = ();

    async fn make(&self, batch: &mut Batch<'_>) -> Result<(), QueueError> {
        Ok(batch.tx.telegram_sent(batch.home, self.chat, self.message, self.task.0).await?)
    }
}
