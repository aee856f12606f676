//! Taking tasks, giving them back, and being heard.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::batch::Batch;
use super::settle;
use super::writer::Change;
use super::{Arrived, Claim, Held, Lease, Queue, QueueError};
use crate::agents::task::{Act, Kind, Status, Task, TaskId};
use crate::store::tasks::Kept;

/// The next task, or this very one.
#[derive(Debug)]
pub struct Claiming {
    pub claim: Claim,
    pub only: Option<TaskId>,
}

impl Change for Claiming {
    type Done = Option<Task>;

    /// A task that nobody hears of would be given up in the end.
    const NEEDS_A_LISTENER: bool = true;

    async fn make(&self, batch: &mut Batch<'_>) -> Result<Option<Task>, QueueError> {
        let claim = &self.claim;
        // Who takes this very task carries it to somebody, who has not been heard by that.
        if self.only.is_none() {
            batch.heard(&claim.target).await?;
        }
        if let Some(mut same) = batch.claimed(&claim.target, &claim.claim).await?
            && !same.task.status.is_finished()
            && self.only.is_none_or(|only| only == same.task.id)
        {
            // The answer was lost on its way.
            resume(batch, &mut same);
            return Ok(Some(same.task));
        }
        let mut kept = match self.only {
            Some(only) => batch.task(only).await?,
            None => match batch.tx.next_task(batch.home, &claim.target, batch.now.as_millisecond()).await? {
                Some(kept) => batch.met(kept),
                None => return Ok(None),
            },
        };
        if kept.task.target != claim.target || batch.act(&mut kept, Act::Claim).is_none() {
            return Ok(None);
        }
        let ms = |lease: Duration| i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
        (kept.lease_ms, kept.beats) = match claim.lease {
            Lease::Beats(lease) => (Some(ms(lease)), true),
            Lease::Speaks(lease) => (Some(ms(lease)), false),
            Lease::Held => (None, false),
        };
        kept.task.lease_until = kept.lease_ms.and_then(|lease| batch.after(lease));
        kept.task.attempts += 1;
        kept.task.acknowledged = Some(batch.now);
        kept.task.claim = Some(claim.claim.clone());
        kept.task.claimed_by = Some(claim.by.clone());
        // What somebody before has asked is not this one's question.
        (kept.task.question, kept.task.reason) = (None, None);
        batch.put(&kept);
        batch.tell(&kept, Kind::Acknowledged, format!("claimed by {}", claim.by));
        Ok(Some(kept.task))
    }
}

/// Its claimer is heard: the lease begins anew. A task that was put back meanwhile is its own again.
pub fn resume(batch: &mut Batch<'_>, kept: &mut Kept) {
    if kept.task.status == Status::Pending && batch.act(kept, Act::Claim).is_some() {
        kept.task.lease_until = kept.lease_ms.and_then(|lease| batch.after(lease));
        kept.task.reason = None;
        let goes_on = match kept.task.question.and_then(|_| batch.act(kept, Act::Ask)) {
            Some(_) => "its agent is heard again, and its question still waits for an answer",
            None => "its agent is heard again, and goes on",
        };
        batch.put(kept);
        batch.tell(kept, Kind::Note, goes_on);
    } else if needs_renewal(kept, batch.now) {
        kept.task.lease_until = kept.lease_ms.and_then(|lease| batch.after(lease));
        batch.put_lease(kept);
    }
}

/// Whether a running task's lease is worth writing: most of what is said comes soon after something else.
pub fn needs_renewal(kept: &Kept, now: Timestamp) -> bool {
    let (Some(lease), Some(until)) = (kept.lease_ms, kept.task.lease_until) else { return false };
    kept.task.status.is_running() && until.as_millisecond() - now.as_millisecond() < lease / 4 * 3
}

/// Where a claim stands, for whoever has it.
pub fn held(claim: &str, task: &Task) -> Held {
    Held {
        claim: claim.to_owned(),
        task: task.id,
        status: task.status,
        reason: task.reason.clone(),
        holds: task.status.is_running(),
    }
}

#[derive(Debug)]
pub struct Beat {
    pub target: Arc<str>,
    pub claims: Vec<String>,
}

impl Change for Beat {
    type Done = Vec<Held>;

    async fn make(&self, batch: &mut Batch<'_>) -> Result<Vec<Held>, QueueError> {
        batch.heard(&self.target).await?;
        let mut all = Vec::with_capacity(self.claims.len());
        for claim in &self.claims {
            let Some(mut kept) = batch.claimed(&self.target, claim).await? else { continue };
            if !kept.task.status.is_finished() {
                resume(batch, &mut kept);
            }
            all.push(held(claim, &kept.task));
        }
        Ok(all)
    }
}

/// It could not be carried: as if it had never been claimed.
#[derive(Debug)]
pub struct GiveBack {
    pub task: TaskId,
    pub claim: String,
}

impl Change for GiveBack {
    type Done = ();

    async fn make(&self, batch: &mut Batch<'_>) -> Result<(), QueueError> {
        let mut kept = batch.task(self.task).await?;
        if kept.task.claim.as_ref() != Some(&self.claim) {
            return Err(QueueError::Lost { task: self.task });
        }
        if kept.task.status.is_finished() {
            return Ok(());
        }
        lay_back(batch, &mut kept, Arrived::Never);
        batch.tell(&kept, Kind::Note, "given back, and waits again");
        Ok(())
    }
}

impl Queue {
    /// Takes a carried task from whoever has it, since they cannot be heard any more. Where it may have reached somebody
    /// it is as with one who fell silent: it waits again, or is given up. False: they do not have it any more.
    pub async fn take_away(&self, task: &Task, arrived: Arrived, why: String) -> Result<bool, QueueError> {
        let Some(claim) = task.claim.clone() else { return Ok(false) };
        let done = self.ask(TakeAway { task: task.id, claim, arrived, why }).await?;
        done.iter().for_each(|words| self.witness.note(words));
        Ok(done.is_some())
    }
}

/// Whoever had it cannot be heard any more: it was carried in a way that its target has no longer.
#[derive(Debug)]
pub struct TakeAway {
    pub task: TaskId,
    pub claim: String,
    pub arrived: Arrived,
    pub why: String,
}

impl Change for TakeAway {
    /// What was done, for the record. None: somebody was quicker.
    type Done = Option<String>;

    async fn make(&self, batch: &mut Batch<'_>) -> Result<Option<String>, QueueError> {
        let mut kept = batch.task(self.task).await?;
        let (id, why) = (self.task, &self.why);
        if !kept.task.status.is_running() || kept.task.claim.as_ref() != Some(&self.claim) {
            return Ok(None);
        }
        let (attempts, most) = (kept.task.attempts, kept.task.max_attempts);
        let used = match self.arrived {
            Arrived::Perhaps if attempts >= most => {
                settle::end(batch, &mut kept, Act::GiveUp, Kind::Dead, why);
                return Ok(Some(format!("{id} is dead: {why}")));
            }
            Arrived::Perhaps => format!(", {attempts} of {most} attempts are used"),
            Arrived::Never => String::new(),
        };
        kept.task.reason = Some(why.clone());
        lay_back(batch, &mut kept, self.arrived);
        let told = format!("{why}; it waits again{used}");
        batch.tell(&kept, Kind::Note, told.clone());
        Ok(Some(format!("{id}: {told}")))
    }
}

/// It waits as if it had never been claimed; the attempt counts if somebody may have got it.
fn lay_back(batch: &mut Batch<'_>, kept: &mut Kept, arrived: Arrived) {
    batch.act(kept, Act::Requeue);
    let task = &mut kept.task;
    if arrived == Arrived::Never {
        task.attempts = (task.attempts - 1).max(0);
    }
    (task.claim, task.claimed_by, task.lease_until, task.question) = (None, None, None, None);
    task.acknowledged = None;
    batch.put(kept);
}
