//! What agents say: of a task, or of none.

use std::sync::Arc;

use super::batch::Batch;
use super::claim::resume;
use super::writer::Change;
use super::{QueueError, Report, Reported, Saying, Who};
use crate::agents::task::{Act, Kind, Status, Task};
use crate::store::tasks::Kept;

impl Saying {
    fn act(self) -> Option<Act> {
        match self {
            Saying::Progress => Some(Act::Say),
            Saying::Note => None,
            Saying::Ask => Some(Act::Ask),
            Saying::Complete => Some(Act::Complete),
            Saying::Fail => Some(Act::Fail),
        }
    }

    fn kind(self) -> Kind {
        match self {
            Saying::Progress => Kind::Progress,
            Saying::Note => Kind::Note,
            Saying::Ask => Kind::Question,
            Saying::Complete => Kind::Complete,
            Saying::Fail => Kind::Error,
        }
    }
}

impl Change for Report {
    type Done = Reported;

    async fn make(&self, batch: &mut Batch<'_>) -> Result<Reported, QueueError> {
        let mut kept = batch.task(self.task).await?;
        if let Some(seq) = batch.said_before(self.source.as_deref()).await? {
            return Ok(Reported { seq, new: false, status: kept.task.status });
        }
        self.who.check_right(&kept.task)?;
        self.check_question(&kept)?;
        batch.heard(&kept.task.target).await?;
        if self.takes_it(&kept) {
            resume(batch, &mut kept);
        }
        let before = kept.task.status;
        let after = self.saying.act().and_then(|act| batch.act(&mut kept, act));
        // What changes nothing is no end and no question, whatever it was meant to be.
        let kind = match (after, self.saying) {
            (None, Saying::Ask | Saying::Complete | Saying::Fail) => Kind::Note,
            (_, saying) => saying.kind(),
        };
        let (task, target) = (Some(kept.task.id), kept.task.target.clone());
        let seq = batch.say(&target, task, kind, self.content.clone(), self.source.clone());
        match after {
            Some(after) if after != before => {
                self.set(&mut kept, after, seq, batch);
                batch.put(&kept);
            }
            _ => {}
        }
        Ok(Reported { seq, new: true, status: kept.task.status })
    }
}

impl Who {
    /// Whether they may speak for a task.
    pub(super) fn check_right(&self, task: &Task) -> Result<(), QueueError> {
        let Who::Claimer { claim, by } = self else { return Ok(()) };
        let theirs = match claim {
            Some(claim) => task.claim.as_ref() == Some(claim),
            None if task.claimed_by.is_none() && task.status == Status::Pending => {
                let why = "nobody has claimed it yet";
                return Err(QueueError::Conflict { task: task.id, status: task.status, why });
            }
            None => task.claimed_by.as_ref() == Some(by),
        };
        if theirs { Ok(()) } else { Err(QueueError::Lost { task: task.id }) }
    }
}

impl Report {
    /// An answer belongs to the one question that waits for it.
    fn check_question(&self, kept: &Kept) -> Result<(), QueueError> {
        let task = &kept.task;
        if self.saying != Saying::Ask || task.question.is_none() {
            return Ok(());
        }
        let why = "its question still waits for an answer";
        Err(QueueError::Conflict { task: task.id, status: task.status, why })
    }

    /// Whoever reports works on it. A carrier only if what is said has to do with how it stands.
    fn takes_it(&self, kept: &Kept) -> bool {
        match self.who {
            Who::Claimer { .. } => !kept.task.status.is_finished(),
            Who::Carrier => {
                let matters = matches!(self.saying, Saying::Ask | Saying::Complete | Saying::Fail);
                kept.task.status.is_running() || (matters && kept.task.status == Status::Pending)
            }
        }
    }

    /// What comes with the new status.
    fn set(&self, kept: &mut Kept, after: Status, seq: i64, batch: &Batch<'_>) {
        match after {
            Status::InputRequired => {
                kept.task.question = Some(seq);
                if !kept.beats {
                    // Nobody knows how long the answer takes.
                    kept.task.lease_until = None;
                }
            }
            Status::InProgress => kept.task.started = kept.task.started.or(Some(batch.now)),
            Status::Complete | Status::Error => {
                let task = &mut kept.task;
                let said = Some(self.content.clone());
                (task.completed, task.exit_code) = (Some(batch.now), self.exit_code);
                (task.lease_until, task.question) = (None, None);
                (task.result, task.reason) = if after == Status::Complete { (said, None) } else { (None, said) };
            }
            Status::Pending | Status::Acknowledged | Status::Cancelled | Status::Dead => {}
        }
    }
}

/// Something said that belongs to no task.
#[derive(Debug)]
pub struct Note {
    pub target: Arc<str>,
    pub kind: Kind,
    pub content: String,
    pub source: Option<String>,
}

impl Change for Note {
    type Done = i64;

    async fn make(&self, batch: &mut Batch<'_>) -> Result<i64, QueueError> {
        if let Some(seq) = batch.said_before(self.source.as_deref()).await? {
            return Ok(seq);
        }
        batch.heard(&self.target).await?;
        Ok(batch.say(&self.target, None, self.kind, self.content.clone(), self.source.clone()))
    }
}
