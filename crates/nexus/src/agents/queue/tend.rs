//! The holder's work: leases and deadlines that run out, and what is too old to keep.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nexus_core::{Chain, clock};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::batch::Batch;
use super::writer::Change;
use super::{Queue, QueueError};
use crate::agents::task::{Act, Kind};
use crate::store::StoreError;
use crate::store::tasks::Kept;

/// Tasks of one sweep: other changes come in between.
const AT_ONCE: i64 = 100;
/// Updates that one step of pruning takes away.
const UPDATES_AT_ONCE: i64 = 500;
/// What another process has set is looked for at least so often, whatever it has told.
const LOOK: Duration = Duration::from_secs(30);
/// And at most so often, however much it tells.
const SOON: Duration = Duration::from_secs(1);
/// Why a task is given up that was not finished in time.
const LATE: &str = "its deadline passed";
const PRUNE_EVERY_MS: i64 = 600_000;
/// After a failure.
const PAUSE: Duration = Duration::from_secs(5);
/// When the clock on the wall has moved so much more than time has passed, it was set, or the machine slept.
pub const JUMP_MS: i64 = 5_000;

/// Every lease begins anew: nobody could be heard for a while.
#[derive(Debug)]
pub struct Grace;

impl Change for Grace {
    type Done = ();

    async fn make(&self, batch: &mut Batch<'_>) -> Result<(), QueueError> {
        batch.ears.take_missed();
        renew_all(batch).await?;
        batch.next_due = Some(batch.tx.next_due(batch.home).await?);
        Ok(())
    }
}

async fn renew_all(batch: &mut Batch<'_>) -> Result<(), StoreError> {
    batch.write_tasks().await?;
    batch.tx.renew_all(batch.home, batch.now.as_millisecond()).await?;
    // What this transaction has read of leases is older.
    batch.forget_all();
    Ok(())
}

#[derive(Debug)]
pub struct Sweep;

/// What a sweep has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swept {
    All,
    /// There is more to do at once.
    Some,
}

impl Change for Sweep {
    /// With what was done, for the record.
    type Done = (Swept, Vec<String>);

    async fn make(&self, batch: &mut Batch<'_>) -> Result<(Swept, Vec<String>), QueueError> {
        // Whoever could not be heard has not been silent. If this is not written either, they were missed again.
        if batch.ears.take_missed() {
            renew_all(batch).await?;
        }
        batch.write_tasks().await?;
        let now_ms = batch.now.as_millisecond();
        let late = batch.tx.late_tasks(batch.home, now_ms, AT_ONCE).await?;
        let (mut found, mut done) = (late.len(), Vec::new());
        for kept in late {
            let mut kept = batch.met(kept);
            super::settle::end(batch, &mut kept, Act::GiveUp, Kind::Dead, LATE);
            done.push(format!("{} is dead: {LATE}", kept.task.id));
        }
        batch.write_tasks().await?;
        let silent = batch.tx.silent_tasks(batch.home, now_ms, AT_ONCE).await?;
        found = found.max(silent.len());
        for kept in silent {
            let kept = batch.met(kept);
            done.push(fall_silent(batch, kept));
        }
        batch.write_tasks().await?;
        batch.next_due = Some(batch.tx.next_due(batch.home).await?);
        let swept = if found < usize::try_from(AT_ONCE).unwrap_or_default() { Swept::All } else { Swept::Some };
        Ok((swept, done))
    }
}

/// Its claimer was not heard in time. Tells what that means for it.
fn fall_silent(batch: &mut Batch<'_>, mut kept: Kept) -> String {
    let seconds = (kept.lease_ms.unwrap_or_default() + 999) / 1_000;
    let why = format!("its worker was not heard for {seconds} s");
    let (attempts, most) = (kept.task.attempts, kept.task.max_attempts);
    if attempts >= most {
        super::settle::end(batch, &mut kept, Act::GiveUp, Kind::Dead, &why);
        return format!("{} is dead: {why}", kept.task.id);
    }
    // The claim stays, and its question: until somebody else takes the task, its claimer may be heard again.
    batch.act(&mut kept, Act::Requeue);
    kept.task.lease_until = None;
    kept.task.reason = Some(why.clone());
    batch.put(&kept);
    let told = format!("{why}; it waits again, {attempts} of {most} attempts are used");
    let recorded = format!("{}: {told}", kept.task.id);
    batch.tell(&kept, Kind::Note, told);
    recorded
}

/// A step of taking away what was finished before a moment.
#[derive(Debug)]
pub struct Prune {
    pub before: Timestamp,
}

impl Change for Prune {
    type Done = Swept;

    async fn make(&self, batch: &mut Batch<'_>) -> Result<Swept, QueueError> {
        batch.write_tasks().await?;
        let before_ms = self.before.as_millisecond();
        let mut left = UPDATES_AT_ONCE;
        for kept in batch.tx.old_tasks(batch.home, before_ms, AT_ONCE).await? {
            left -= batch.tx.drop_updates(batch.home, kept.task.id, left).await?;
            if left <= 0 {
                return Ok(Swept::Some);
            }
            batch.tx.drop_task(batch.home, kept.task.id).await?;
            batch.forget(kept.task.id);
            batch.count(&kept.task.target, kept.task.status, kept.task.priority, -1);
            left -= 1;
        }
        left -= batch.tx.drop_notes(batch.home, before_ms, left.max(1)).await?;
        Ok(if left < UPDATES_AT_ONCE { Swept::Some } else { Swept::All })
    }
}

/// How the clock on the wall and time that passes go together.
#[derive(Debug)]
struct Passage {
    wall_ms: i64,
    passed_ms: i64,
}

impl Passage {
    fn now() -> Self {
        Self { wall_ms: clock::now_ms(), passed_ms: clock::monotonic_ms() }
    }

    fn jumped(&self, earlier: &Passage) -> bool {
        ((self.wall_ms - earlier.wall_ms) - (self.passed_ms - earlier.passed_ms)).abs() > JUMP_MS
    }
}

impl Queue {
    /// See [`Queue::tend`].
    pub(super) async fn tend_until(self: Arc<Self>, keep: Duration, stop: CancellationToken) {
        let (mut due, mut pokes) = (self.due.subscribe(), self.bell.pokes());
        let (mut seen, mut pruned_ms) = (Passage::now(), None);
        let mut grace = true;
        while !stop.is_cancelled() {
            let now = Passage::now();
            // The hub was away, or slept, or the clock was set: a silence of that time tells nothing of an agent.
            grace |= now.jumped(&seen);
            seen = now;
            let worked = self.tend_once(&mut grace, &mut pruned_ms, keep).await;
            let next = *due.borrow_and_update();
            let mut poked = false;
            let pause = match worked {
                Ok(Swept::Some) => Duration::ZERO,
                Ok(Swept::All) => next.map_or(LOOK, |at| self.until(at).min(LOOK)),
                Err(QueueError::Ending) => return,
                Err(error) => {
                    warn!(error = %Chain(&error), "leases and deadlines of tasks are not looked after; trying again");
                    PAUSE
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                _ = due.changed() => {}
                // Another process may have set something that runs out before all that is known here.
                _ = pokes.changed() => poked = true,
                () = stop.cancelled() => return,
            }
            if poked {
                tokio::select! {
                    () = sleep(pause.min(SOON)) => pokes.mark_unchanged(),
                    () = stop.cancelled() => return,
                }
            }
        }
    }

    /// Milliseconds are whole: one more, and it has passed.
    fn until(&self, at_ms: i64) -> Duration {
        Duration::from_millis(u64::try_from(at_ms - self.clock.now_ms() + 1).unwrap_or_default())
    }

    async fn tend_once(
        &self,
        grace: &mut bool,
        pruned_ms: &mut Option<i64>,
        keep: Duration,
    ) -> Result<Swept, QueueError> {
        if *grace {
            self.ask(Grace).await?;
            *grace = false;
        }
        let (swept, done) = self.ask(Sweep).await?;
        done.iter().for_each(|words| self.witness.note(words));
        if swept == Swept::Some {
            return Ok(Swept::Some);
        }
        let passed = clock::monotonic_ms();
        if pruned_ms.is_none_or(|last| passed - last >= PRUNE_EVERY_MS) {
            let before = self.clock.now().checked_sub(keep).unwrap_or(Timestamp::MIN);
            if self.ask(Prune { before }).await? == Swept::Some {
                return Ok(Swept::Some);
            }
            *pruned_ms = Some(passed);
        }
        Ok(Swept::All)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_is_told_from_time_that_passed() {
        check(60_000, 60_000, false);
        check(61_000, 60_000, false);
        check(3_660_000, 60_000, true);
        check(-3_540_000, 60_000, true);

        #[track_caller]
        fn check(wall_ms: i64, passed_ms: i64, jumped: bool) {
            let earlier = Passage { wall_ms: 1_000, passed_ms: 7 };
            let now = Passage { wall_ms: 1_000 + wall_ms, passed_ms: 7 + passed_ms };
            assert_eq!(now.jumped(&earlier), jumped, "{now:?}");
        }
    }
}
