//! Looking into the queue. Nothing here waits for the writer.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use super::claim::{held, needs_renewal};
use super::{Channel, Chosen, Count, Held, Queue, QueueError, Wanted, Who};
use crate::agents::task::{Status, Task, TaskId, Update};
use crate::store::tasks::Kept;
use crate::store::tasks::said::Where;

/// Rows of one answer, whatever is asked for.
const MOST: i64 = 10_000;

impl Queue {
    /// The unfinished task of a claim.
    pub(super) async fn unfinished(&self, target: &str, claim: &str) -> Result<Option<Kept>, QueueError> {
        let found = self.store.claimed(&self.home, target, claim).await?;
        Ok(found.filter(|kept| !kept.task.status.is_finished()))
    }

    /// Where claims stand. None: something has to be written for it.
    pub(super) async fn look_at(&self, target: &str, claims: &[String]) -> Result<Option<Vec<Held>>, QueueError> {
        let (mut all, now) = (Vec::with_capacity(claims.len()), self.clock.now());
        for claim in claims {
            let Some(kept) = self.store.claimed(&self.home, target, claim).await? else { continue };
            if kept.task.status == Status::Pending || needs_renewal(&kept, now) {
                return Ok(None);
            }
            all.push(held(claim, &kept.task));
        }
        Ok(Some(all))
    }

    pub async fn task(&self, id: TaskId) -> Result<Option<Task>, QueueError> {
        Ok(self.store.task(&self.home, id).await?)
    }

    /// With the beginnings of their words, and without their results.
    pub async fn tasks(&self, chosen: &Chosen) -> Result<Vec<Task>, QueueError> {
        let before = chosen.before.map_or(i64::MAX, |id| id.0);
        let limit = chosen.limit.clamp(1, MOST);
        if chosen.target.is_none() && chosen.status.is_none() {
            return Ok(self.store.newest_tasks(&self.home, before, limit).await?);
        }
        // The counts tell which targets have tasks, so that no look goes through all of them. Each is looked at in the
        // order in which tasks go on, whatever was counted: one that moves meanwhile is found where it comes to.
        let counts = self.counts().await?;
        let mut targets: Vec<&str> = counts.iter().map(|count| count.target.as_str()).collect();
        targets.retain(|target| chosen.target.as_deref().is_none_or(|wanted| wanted == *target));
        targets.sort_unstable();
        targets.dedup();
        let wanted = |status: &Status| chosen.status.as_ref().is_none_or(|wanted| wanted.contains(status));
        let statuses: Vec<Status> = Status::ALL.iter().copied().filter(wanted).collect();
        let places: Vec<_> =
            targets.iter().flat_map(|target| statuses.iter().map(move |status| (*target, *status))).collect();
        let oldest = self.oldest_listed(&places, before, limit).await?;
        let mut found: Vec<Task> = Vec::new();
        for place in places {
            found.extend(self.store.newest_tasks_of(&self.home, place, oldest..before, limit).await?);
        }
        // One that was seen twice is where it was seen last.
        found.reverse();
        found.sort_by_key(|task| std::cmp::Reverse(task.id));
        found.dedup_by_key(|task| task.id);
        found.truncate(usize::try_from(limit).unwrap_or_default());
        Ok(found)
    }

    /// From which number on there are so many in all of these places together. What is older need not be read.
    async fn oldest_listed(&self, places: &[(&str, Status)], before: i64, limit: i64) -> Result<i64, QueueError> {
        let mut numbers = Vec::new();
        if places.len() > 1 {
            for place in places {
                numbers.extend(self.store.newest_numbers_of(&self.home, *place, before, limit).await?);
            }
        }
        numbers.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
        numbers.dedup();
        Ok(usize::try_from(limit - 1).ok().and_then(|last| numbers.get(last).copied()).unwrap_or(0))
    }

    /// The waiting tasks of a target, in the order in which they will be claimed.
    pub async fn next(&self, target: &str, limit: i64) -> Result<Vec<Task>, QueueError> {
        Ok(self.store.next_tasks(&self.home, target, limit.clamp(1, MOST)).await?)
    }

    /// The same with the beginnings of their words.
    pub async fn first_waiting(&self, target: &str, limit: i64) -> Result<Vec<Task>, QueueError> {
        Ok(self.store.first_waiting(&self.home, target, limit.clamp(1, MOST)).await?)
    }

    /// The claimed and unfinished tasks of a target, oldest first.
    pub async fn running(&self, target: &str) -> Result<Vec<Task>, QueueError> {
        let mut running = Vec::new();
        for status in Status::ALL.iter().copied().filter(|status| status.is_running()) {
            running.extend(self.store.oldest_tasks_of(&self.home, target, status, MOST).await?);
        }
        running.sort_unstable_by_key(|task| task.id);
        Ok(running)
    }

    /// Those of them that were carried to somebody in another way than this, with the beginnings of their words.
    pub async fn carried_otherwise(&self, target: &str, way: &str) -> Result<Vec<Task>, QueueError> {
        let mut carried = Vec::new();
        for status in Status::ALL.iter().copied().filter(|status| status.is_running()) {
            carried.extend(self.store.held_otherwise(&self.home, (target, status), &format!("{way}:%"), MOST).await?);
        }
        Ok(carried)
    }

    /// The oldest of them, with the beginnings of their words: those of a chat can be many, and long.
    pub async fn first_running(&self, target: &str, limit: i64) -> Result<Vec<Task>, QueueError> {
        let mut running = Vec::new();
        for status in Status::ALL.iter().copied().filter(|status| status.is_running()) {
            running.extend(self.store.first_tasks_of(&self.home, target, status, limit.clamp(1, MOST)).await?);
        }
        running.sort_unstable_by_key(|task| task.id);
        running.truncate(usize::try_from(limit).unwrap_or(0));
        Ok(running)
    }

    /// When the oldest waiting task of a target was sent.
    pub async fn oldest_pending(&self, target: &str) -> Result<Option<Timestamp>, QueueError> {
        let oldest = self.store.first_tasks_of(&self.home, target, Status::Pending, 1).await?;
        Ok(oldest.first().map(|task| task.created))
    }

    /// In order of number.
    pub async fn updates(&self, wanted: &Wanted) -> Result<Vec<Update>, QueueError> {
        let wanted = Where {
            after: wanted.after,
            // The store keeps whole milliseconds: rather one too many than one too few.
            since_ms: wanted.since.map(Timestamp::as_millisecond),
            target: wanted.target.as_deref(),
            task: wanted.task.map(|task| task.0),
            limit: wanted.limit.clamp(1, MOST),
        };
        Ok(self.store.updates(&self.home, wanted).await?)
    }

    /// The last ones of a task, newest first.
    pub async fn last_updates(&self, task: TaskId, most: i64) -> Result<Vec<Update>, QueueError> {
        Ok(self.store.last_updates(&self.home, task, most.clamp(0, MOST)).await?)
    }

    /// What became of a question, for whoever asked it: where the task stands, and the answer once it is there.
    pub async fn asked(&self, task: TaskId, question: i64, who: &Who) -> Result<(Status, Option<String>), QueueError> {
        // First the task: a question that waits then, and has no answer afterwards, still waits.
        let mut stands = self.known(task).await?;
        let answer = self.store.answer_to(&self.home, task, question).await?;
        if answer.is_some() {
            stands = self.known(task).await?;
        }
        // What somebody else is told since is not for them, and nobody will tell them anything.
        who.check_right(&stands).map_err(|_| QueueError::Lost { task })?;
        if answer.is_none() && !stands.status.is_finished() && stands.question != Some(question) {
            let why = "that question does not wait for an answer";
            return Err(QueueError::Conflict { task, status: stands.status, why });
        }
        Ok((stands.status, answer.map(|update| update.content)))
    }

    async fn known(&self, id: TaskId) -> Result<Task, QueueError> {
        self.task(id).await?.ok_or(QueueError::Unknown(id))
    }

    /// The task of a claim: the unfinished one, else the one that was finished last.
    pub async fn of_claim(&self, target: &str, claim: &str) -> Result<Option<Task>, QueueError> {
        Ok(self.store.claimed(&self.home, target, claim).await?.map(|kept| kept.task))
    }

    /// The unfinished tasks of a target that a key has claimed, oldest first, with the beginnings of their words. One
    /// that was put back is among them until somebody takes it.
    pub async fn held_by(&self, target: &str, by: &str, limit: i64) -> Result<Vec<Task>, QueueError> {
        let held = self.store.held_by(&self.home, target, by, limit.clamp(1, MOST)).await?;
        Ok(held.into_iter().map(|kept| kept.task).collect())
    }

    /// Those that have ended since, however they did, the last one first.
    pub async fn was_held_by(
        &self,
        target: &str,
        by: &str,
        since: Timestamp,
        limit: i64,
    ) -> Result<Vec<Task>, QueueError> {
        let since_ms = since.as_millisecond();
        Ok(self.store.was_held_by(&self.home, (target, by), since_ms, limit.clamp(1, MOST)).await?)
    }

    /// The claims of a key that are heard when it speaks.
    pub(super) async fn spoken_claims(&self, target: &str, by: &str) -> Result<Vec<String>, QueueError> {
        let held = self.store.held_by(&self.home, target, by, MOST).await?;
        let spoken = held.into_iter().filter(|kept| kept.task.status.is_running() && !kept.beats);
        Ok(spoken.filter_map(|kept| kept.task.claim).collect())
    }

    pub async fn last_update(&self) -> Result<i64, QueueError> {
        Ok(self.store.last_numbers(&self.home).await?.update)
    }

    pub async fn counts(&self) -> Result<Vec<Count>, QueueError> {
        // The store counts each priority by itself.
        let mut counts: BTreeMap<(String, Status), i64> = BTreeMap::new();
        for row in self.store.task_counts(&self.home).await? {
            if let Some(status) = Status::parse(&row.status) {
                *counts.entry((row.target, status)).or_default() += row.n;
            }
        }
        Ok(counts.into_iter().map(|((target, status), n)| Count { target, status, n }).collect())
    }

    pub async fn channels(&self) -> Result<Vec<Channel>, QueueError> {
        let rows = self.store.channels(&self.home).await?;
        let mut all: HashMap<String, (Option<i64>, Option<String>)> =
            rows.into_iter().map(|row| (row.name, (row.heard_ms, row.trouble))).collect();
        // What this process has heard is newer than what it has told the store.
        for (name, here) in self.ears.all() {
            let known = all.entry(name).or_default();
            if here.at_ms > known.0 {
                *known = (here.at_ms, here.trouble);
            }
        }
        let mut channels: Vec<Channel> = all
            .into_iter()
            .map(|(name, (heard, trouble))| {
                let heard = heard.and_then(|ms| Timestamp::from_millisecond(ms).ok());
                Channel { name, heard, trouble }
            })
            .collect();
        channels.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(channels)
    }

    /// How far this key has read, for this choice. None: never.
    pub async fn bookmark(
        &self,
        principal: &str,
        target: Option<&str>,
        task: Option<TaskId>,
    ) -> Result<Option<i64>, QueueError> {
        let choice = (target.unwrap_or_default(), task.map_or(0, |task| task.0));
        Ok(self.store.bookmark(&self.home, principal, choice).await?)
    }

    /// The task that a message of a Telegram chat is about, and the question that it asks.
    pub async fn telegram_task(&self, chat: i64, message: i64) -> Result<Option<(TaskId, Option<i64>)>, QueueError> {
        Ok(self.store.telegram_task(&self.home, chat, message).await?)
    }
}
