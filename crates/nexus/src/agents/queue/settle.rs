//! What the operator, or the hub, decides of a task: an answer, its end, another attempt.

use super::QueueError;
use super::batch::Batch;
use super::writer::Change;
use crate::agents::task::{Act, Call, Kind, Task, TaskId};
use crate::store::tasks::Kept;

/// Ends a task otherwise than its agent would. False: it has ended.
pub fn end(batch: &mut Batch<'_>, kept: &mut Kept, act: Act, kind: Kind, why: &str) -> bool {
    if batch.act(kept, act).is_none() {
        return false;
    }
    kept.task.completed = Some(batch.now);
    kept.task.reason = Some(why.to_owned());
    (kept.task.lease_until, kept.task.question) = (None, None);
    batch.put(kept);
    batch.tell(kept, kind, why);
    true
}

fn conflict(kept: &Kept, why: &'static str) -> QueueError {
    QueueError::Conflict { task: kept.task.id, status: kept.task.status, why }
}

/// The answer to an agent's question.
#[derive(Debug)]
pub struct Answer {
    pub task: TaskId,
    /// Only to this one.
    pub question: i64,
    pub answer: String,
}

impl Change for Answer {
    type Done = Task;

    async fn make(&self, batch: &mut Batch<'_>) -> Result<Task, QueueError> {
        let mut kept = batch.task(self.task).await?;
        let waits = kept.task.status.after(Act::Answer).is_some();
        if waits && kept.task.question != Some(self.question) {
            return Err(conflict(&kept, "it waits for the answer to another question"));
        }
        if batch.act(&mut kept, Act::Answer).is_none() {
            return Err(conflict(&kept, "it does not wait for an answer"));
        }
        kept.task.question = None;
        kept.task.lease_until = kept.lease_ms.and_then(|lease| batch.after(lease));
        batch.put(&kept);
        batch.tell(&kept, Kind::Answer, self.answer.clone());
        Ok(kept.task)
    }
}

/// Nobody shall do it any more: it is cancelled, or given up.
#[derive(Debug)]
pub struct End {
    pub task: TaskId,
    pub act: Act,
    pub kind: Kind,
    pub why: String,
}

impl Change for End {
    type Done = Task;

    async fn make(&self, batch: &mut Batch<'_>) -> Result<Task, QueueError> {
        let mut kept = batch.task(self.task).await?;
        match end(batch, &mut kept, self.act, self.kind, &self.why) {
            true => Ok(kept.task),
            false => Err(conflict(&kept, "it is finished already")),
        }
    }
}

/// It shall be done after all.
#[derive(Debug)]
pub struct Retry {
    pub task: TaskId,
    pub by: String,
}

impl Change for Retry {
    type Done = Task;

    async fn make(&self, batch: &mut Batch<'_>) -> Result<Task, QueueError> {
        batch.write_tasks().await?;
        let mut kept = batch.task(self.task).await?;
        if !kept.task.status.is_finished() {
            return Err(conflict(&kept, "only what is finished can be tried again"));
        }
        if Call::of(&kept.task.content) == Call::Stop {
            return Err(conflict(&kept, "a STOP works when it is sent; send it anew"));
        }
        let same = batch.tx.same_words(batch.home, &kept.task.target, &[&kept.hash]).await?;
        if let Some((number, _)) = same.first() {
            return Err(QueueError::SameWords { task: self.task, other: TaskId(*number) });
        }
        batch.act(&mut kept, Act::Retry);
        let task = &mut kept.task;
        task.attempts = 0;
        (task.claim, task.claimed_by, task.lease_until, task.question) = (None, None, None, None);
        (task.acknowledged, task.started, task.completed) = (None, None, None);
        (task.result, task.exit_code, task.reason) = (None, None, None);
        task.deadline = task.deadline.filter(|deadline| *deadline > batch.now);
        batch.put(&kept);
        batch.tell(&kept, Kind::Note, format!("put back into the queue by {}", self.by));
        // The index over unfinished ones has to know before somebody sends the same words.
        batch.write_tasks().await?;
        Ok(kept.task)
    }
}
