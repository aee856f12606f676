//! Carries the tasks of one webhook target to it, in their order, and tells it what became of them.
//!
//! All that must outlive a crash is in the queue: a task is claimed before it is posted, under a name that gives the
//! message its id; that it has arrived is a bookmark of its own, and so is how far the target has been told.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use tokio::time::{sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use nexus_core::{Chain, clock};

use super::letter::{Attempt, Letter};
use super::post::{Delivery, Gone, PLACES, Post};
use crate::agents::Queue;
use crate::agents::queue::{Claim, Lease, QueueError, Topic, Wanted};
use crate::agents::task::{Kind, Status, Task, TaskId, Update};

/// A task that does not arrive for this long is given up, and an answer too.
const LATEST: SignedDuration = SignedDuration::from_hours(24);
/// But not before this: the hub may have been away, and the target may start with it.
const EARLIEST: SignedDuration = SignedDuration::from_hours(1);
/// Whoever does not hear for this long that a task is cancelled will not hear it.
const LATEST_CANCEL: SignedDuration = SignedDuration::from_hours(1);
/// Tasks that are claimed and have not arrived. More wait in the queue, where others come before them if they must.
const MOST_UNDER_WAY: usize = 32;
/// What the target is to be told, at once.
const MOST_OWED: usize = 64;
/// Updates read at once.
const PAGE: i64 = 50;
/// Updates that are read again after a restart, at most about.
const READ_AGAIN: i64 = 1_000;
/// After the store has failed.
const PAUSE: Duration = Duration::from_secs(5);
/// At the end, for requests that are on their way.
const LAST_ANSWERS: Duration = Duration::from_secs(3);

/// Names of bookmarks. No key can be called so.
const TOLD: &str = "webhook:told";
const ARRIVED: &str = "webhook:arrived";

/// One target's carrier. Only the holder of the data folder runs it.
pub struct Carrier {
    target: Arc<str>,
    /// The name by which it claims: the same under which its agent reports.
    by: String,
    queue: Arc<Queue>,
    post: Arc<Post>,
    jobs: FuturesUnordered<BoxFuture<'static, Done>>,
    under_way: HashMap<TaskId, UnderWay>,
    /// Tasks that this carrier itself has given up: the target need not be told.
    given_up: HashSet<TaskId>,
    /// How far updates have been read.
    read: Option<i64>,
    /// How far a restart reads them again.
    saved: i64,
    /// Updates that the target is being told of.
    owed: BTreeSet<i64>,
    /// Cancelled when the carrier ends: what waits for another try waits for the next carrier.
    closing: CancellationToken,
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carrier")
            .field("target", &self.target)
            .field("under_way", &self.under_way)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct UnderWay {
    attempt: Attempt,
    /// Calls the letter back.
    back: CancellationToken,
    /// The task has ended meanwhile.
    over: Option<Update>,
}

#[derive(Debug)]
enum Done {
    Task(TaskId, Delivery),
    Told { seq: i64, what: String, delivery: Delivery },
}

impl Carrier {
    pub fn new(target: Arc<str>, by: String, queue: Arc<Queue>, post: Arc<Post>) -> Self {
        Self {
            target,
            by,
            queue,
            post,
            jobs: FuturesUnordered::new(),
            under_way: HashMap::new(),
            given_up: HashSet::new(),
            read: None,
            saved: 0,
            owed: BTreeSet::new(),
            closing: CancellationToken::new(),
        }
    }

    /// Until it is stopped. Requests that are on their way then have a moment to be answered.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let error = match self.work(&stop).await {
                Ok(()) | Err(QueueError::Ending) => break,
                Err(error) => error,
            };
            let target = &self.target;
            warn!(%target, "tasks for {target} wait, and are tried again in {} s: {}", PAUSE.as_secs(), Chain(&error));
            tokio::select! {
                () = sleep(PAUSE) => {}
                () = stop.cancelled() => break,
            }
        }
        self.closing.cancel();
        let ending = async {
            while let Some(done) = self.jobs.next().await {
                self.settle(done).await?;
            }
            Ok::<_, QueueError>(())
        };
        // What is not settled is sent again, under the same name.
        let _ = timeout(LAST_ANSWERS, ending).await;
    }

    async fn work(&mut self, stop: &CancellationToken) -> Result<(), QueueError> {
        // First listen, then look: what comes in between is not missed.
        let mut changes = self.queue.listen(&Topic::Tasks(self.target.clone()));
        let mut standing = self.post.standing();
        self.resume().await?;
        loop {
            changes.borrow_and_update();
            let now = *standing.borrow_and_update();
            self.read_updates().await?;
            if now.is_open() {
                self.claim(now.resting).await?;
            }
            let opens = async {
                match now.closed_until.filter(|_| !now.is_open()) {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = changes.changed() => changed.map_err(|_| QueueError::Ending)?,
                _ = standing.changed() => {}
                () = opens => {}
                () = stop.cancelled() => return Ok(()),
                Some(done) = self.jobs.next() => self.settle(done).await?,
            }
        }
    }

    /// Takes up what an earlier carrier left: how far the target was told, and tasks that may not have arrived.
    async fn resume(&mut self) -> Result<(), QueueError> {
        if self.read.is_none() {
            let told = self.queue.bookmark(TOLD, Some(&self.target), None).await?;
            // What was said before this target had a carrier is of no use to it.
            let from = match told {
                Some(seq) => seq,
                None => self.queue.last_update().await?,
            };
            if told.is_none() {
                self.queue.move_bookmark(TOLD, Some(&self.target), None, from).await?;
            }
            (self.read, self.saved) = (Some(from), from);
        }
        for task in self.queue.running(&self.target).await? {
            let Some(attempt) = Attempt::of(&task) else { continue };
            if task.status == Status::Acknowledged
                && !self.under_way.contains_key(&task.id)
                && !has_arrived(&self.queue, &task, attempt).await?
            {
                self.send(&task, attempt);
            }
        }
        Ok(())
    }

    /// Claims and sends as many tasks as there are places for. Those that rest hold no place.
    async fn claim(&mut self, resting: usize) -> Result<(), QueueError> {
        let sending = self.under_way.len().saturating_sub(resting);
        let room = PLACES.saturating_sub(sending).min(MOST_UNDER_WAY.saturating_sub(self.under_way.len()));
        if room == 0 {
            return Ok(());
        }
        for task in self.queue.next(&self.target, i64::try_from(room).unwrap_or(1)).await? {
            // It was cancelled and is wanted again, and its last letter is still on its way.
            if self.under_way.contains_key(&task.id) {
                continue;
            }
            let attempt = Attempt::new();
            let claim =
                Claim { target: self.target.clone(), claim: attempt.claim(), by: self.by.clone(), lease: Lease::Held };
            if let Some(task) = self.queue.claim_this(task.id, claim).await? {
                self.send(&task, attempt);
            }
        }
        Ok(())
    }

    fn send(&mut self, task: &Task, attempt: Attempt) {
        let (id, letter, back) = (task.id, Letter::task(task, attempt), self.closing.child_token());
        self.given_up.remove(&id);
        self.under_way.insert(id, UnderWay { attempt, back: back.clone(), over: None });
        let (post, until) = (self.post.clone(), given_up_at(attempt.since(), clock::now()));
        self.jobs.push(async move { Done::Task(id, post.deliver(&letter, until, &back).await) }.boxed());
    }

    /// Looks at what has happened to the target's tasks since the last look.
    async fn read_updates(&mut self) -> Result<(), QueueError> {
        while self.owed.len() < MOST_OWED {
            let after = self.read.unwrap_or(self.saved);
            let wanted = Wanted { after, target: Some(self.target.clone()), limit: PAGE, ..Wanted::default() };
            let page = self.queue.updates(&wanted).await?;
            let is_last = i64::try_from(page.len()).unwrap_or(PAGE) < PAGE;
            for update in page {
                let seq = update.seq;
                self.heed(update).await?;
                self.read = Some(seq);
            }
            if is_last {
                break;
            }
        }
        match self.read {
            Some(read) if read - self.saved > READ_AGAIN => self.save().await,
            _ => Ok(()),
        }
    }

    async fn heed(&mut self, update: Update) -> Result<(), QueueError> {
        let Some(id) = update.task else { return Ok(()) };
        match update.kind {
            Kind::Cancelled | Kind::Dead => {
                if self.given_up.remove(&id) {
                    return Ok(());
                }
                if let Some(way) = self.under_way.get_mut(&id) {
                    way.back.cancel();
                    self.owed.insert(update.seq);
                    way.over = Some(update);
                    return Ok(());
                }
                // Wanted again, it is sent again: a cancel would end that.
                match ours(&self.queue, id).await? {
                    Some((task, attempt)) if task.status.is_finished() => self.tell_of_end(id, attempt, &update),
                    _ => {}
                }
            }
            Kind::Answer => {
                if let Some((_, attempt)) = ours(&self.queue, id).await? {
                    self.tell(update.seq, Letter::answer(id, attempt, &update), clock::now() + LATEST);
                }
            }
            // Whoever speaks of a task has got it, whatever came of the request.
            Kind::Progress | Kind::Question | Kind::Complete | Kind::Error => {
                if let Some(way) = self.under_way.get(&id) {
                    way.back.cancel();
                }
            }
            Kind::Acknowledged | Kind::Note => {}
        }
        Ok(())
    }

    fn tell_of_end(&mut self, task: TaskId, attempt: Attempt, update: &Update) {
        self.tell(update.seq, Letter::cancel(task, attempt, update), clock::now() + LATEST_CANCEL);
    }

    fn tell(&mut self, seq: i64, letter: Letter, until: Timestamp) {
        self.owed.insert(seq);
        let (post, closing) = (self.post.clone(), self.closing.clone());
        self.jobs.push(
            async move {
                let delivery = post.deliver(&letter, until, &closing).await;
                Done::Told { seq, what: letter.what, delivery }
            }
            .boxed(),
        );
    }

    async fn settle(&mut self, done: Done) -> Result<(), QueueError> {
        let (id, delivery) = match done {
            // Left for the next carrier.
            Done::Task(_, Delivery::Stopped(_)) | Done::Told { delivery: Delivery::Stopped(_), .. }
                if self.closing.is_cancelled() =>
            {
                return Ok(());
            }
            Done::Told { seq, what, delivery } => {
                if let Delivery::Refused(why) | Delivery::Late(why) = delivery {
                    let target = &self.target;
                    warn!(%target, "{target} did not take this: {what}; {why}");
                }
                self.owed.remove(&seq);
                return self.save().await;
            }
            Done::Task(id, delivery) => (id, delivery),
        };
        let Some(UnderWay { attempt, over, .. }) = self.under_way.remove(&id) else { return Ok(()) };
        match (over, delivery) {
            (Some(update), Delivery::Stopped(Gone::No) | Delivery::Refused(_)) => {
                self.owed.remove(&update.seq);
                self.save().await
            }
            (Some(update), _) => {
                self.tell_of_end(id, attempt, &update);
                Ok(())
            }
            // Called back without an end: its agent was heard.
            (None, Delivery::Taken | Delivery::Stopped(_)) => {
                let mark = attempt.since().as_millisecond();
                self.queue.move_bookmark(ARRIVED, Some(&self.target), Some(id), mark).await
            }
            (None, Delivery::Refused(why)) => {
                self.give_up(id, attempt, format!("{} refused it: {why}", self.target)).await
            }
            (None, Delivery::Late(why)) => {
                self.give_up(id, attempt, format!("{} could not be reached for a day: {why}", self.target)).await
            }
        }
    }

    async fn give_up(&mut self, id: TaskId, attempt: Attempt, why: String) -> Result<(), QueueError> {
        // Its agent may have spoken a moment ago, by another way than the answer.
        let silent = ours(&self.queue, id)
            .await?
            .is_some_and(|(task, now)| now == attempt && task.status == Status::Acknowledged);
        if !silent {
            return Ok(());
        }
        info!(target = %self.target, "{id} is given up: {why}");
        self.given_up.insert(id);
        match self.queue.give_up(id, why).await {
            Err(QueueError::Conflict { .. } | QueueError::Unknown(_) | QueueError::Lost { .. }) => {
                self.given_up.remove(&id);
                Ok(())
            }
            gone => gone.map(drop),
        }
    }

    /// Remembers how far the target has been told of everything.
    async fn save(&mut self) -> Result<(), QueueError> {
        let told = match (self.owed.first(), self.read) {
            (Some(first), _) => first - 1,
            (None, Some(read)) => read,
            (None, None) => return Ok(()),
        };
        if told > self.saved {
            self.queue.move_bookmark(TOLD, Some(&self.target), None, told).await?;
            self.saved = told;
        }
        Ok(())
    }
}

/// A task that a carrier has claimed.
async fn ours(queue: &Queue, id: TaskId) -> Result<Option<(Task, Attempt)>, QueueError> {
    let task = queue.task(id).await?;
    Ok(task.and_then(|task| Attempt::of(&task).map(|attempt| (task, attempt))))
}

/// Whether a task that a carrier has claimed was taken by its target, as far as is known.
pub async fn was_taken(queue: &Queue, task: &Task) -> Result<bool, QueueError> {
    match Attempt::of(task) {
        Some(attempt) if task.status == Status::Acknowledged => has_arrived(queue, task, attempt).await,
        _ => Ok(true),
    }
}

async fn has_arrived(queue: &Queue, task: &Task, attempt: Attempt) -> Result<bool, QueueError> {
    let mark = queue.bookmark(ARRIVED, Some(&task.target), Some(task.id)).await?;
    Ok(mark.is_some_and(|mark| mark >= attempt.since().as_millisecond()))
}

/// When a task is given up that was claimed then, if it does not arrive from now on.
fn given_up_at(claimed: Timestamp, now: Timestamp) -> Timestamp {
    (claimed + LATEST).max(now + EARLIEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_has_a_day_to_arrive_and_an_hour_after_a_hub_that_was_away() {
        check(0, 24);
        check(20, 24);
        check(24, 25);
        check(500, 501);

        #[track_caller]
        fn check(now: i64, expected: i64) {
            let at = |hours| Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours);
            assert_eq!(given_up_at(at(0), at(now)), at(expected));
        }
    }
}
