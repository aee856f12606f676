//! One transaction over many changes. What is read is read once, and what is written waits, where it can, to be
//! written together.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::QueueError;
use super::ears::Ears;
use crate::agents::bell::Rung;
use crate::agents::task::{Act, Kind, Priority, Status, TaskId};
use crate::store::tasks::said::NewUpdate;
use crate::store::tasks::{Kept, Numbers};
use crate::store::tx::Tx;
use crate::store::{Store, StoreError};

/// A transaction of the queue. Nobody else changes the hub's tasks while it lasts.
#[derive(Debug)]
pub struct Batch<'a> {
    pub tx: Tx,
    pub home: &'a str,
    pub now: Timestamp,
    pub ears: &'a Ears,
    pub(super) numbers: Numbers,
    numbers_before: Numbers,
    tasks: HashMap<TaskId, Slot>,
    changed: Vec<TaskId>,
    waiting: HashMap<Arc<str>, BTreeMap<Priority, i64>>,
    counts: BTreeMap<(Arc<str>, Status, Priority), i64>,
    updates: Vec<NewUpdate>,
    sources: HashMap<String, i64>,
    rung: Rung,
    /// Whose being heard is in it.
    heard: Vec<String>,
    /// The earliest lease or deadline that was set.
    due: Option<i64>,
    /// Set by a sweep, which has looked at all of them.
    pub next_due: Option<Option<i64>>,
}

/// A task as the transaction has it, and what of that is not written yet.
#[derive(Debug)]
struct Slot {
    kept: Kept,
    /// How it stands in the store.
    from: Status,
    unwritten: Unwritten,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unwritten {
    Nothing,
    Lease,
    Task,
}

/// What a committed batch has to tell.
#[derive(Debug)]
pub struct Committed {
    pub rung: Rung,
    pub due: Option<i64>,
    pub next_due: Option<Option<i64>>,
}

impl<'a> Batch<'a> {
    pub async fn begin(store: &Store, home: &'a str, now: Timestamp, ears: &'a Ears) -> Result<Self, StoreError> {
        let mut tx = store.begin().await?;
        let numbers = tx.numbers(home).await?;
        Ok(Self {
            tx,
            home,
            now,
            ears,
            numbers,
            numbers_before: numbers,
            tasks: HashMap::new(),
            changed: Vec::new(),
            waiting: HashMap::new(),
            counts: BTreeMap::new(),
            updates: Vec::new(),
            sources: HashMap::new(),
            rung: Rung::default(),
            heard: Vec::new(),
            due: None,
            next_due: None,
        })
    }

    pub async fn commit(mut self) -> Result<Committed, StoreError> {
        let written = match self.write_all().await {
            Ok(()) => self.tx.commit().await,
            Err(error) => {
                self.tx.give_up().await;
                Err(error)
            }
        };
        match written {
            Ok(()) => Ok(Committed { rung: self.rung, due: self.due, next_due: self.next_due }),
            Err(error) => {
                untell(self.ears, &self.heard);
                Err(error)
            }
        }
    }

    pub async fn give_up(self) {
        untell(self.ears, &self.heard);
        self.tx.give_up().await;
    }

    async fn write_all(&mut self) -> Result<(), StoreError> {
        self.write_tasks().await?;
        self.tx.set_numbers(self.home, self.numbers_before, self.numbers).await?;
        let counts = std::mem::take(&mut self.counts).into_iter().filter(|(_, n)| *n != 0);
        let counts: Vec<_> = counts.map(|((target, status, priority), n)| (target, status, priority, n)).collect();
        self.tx.count_tasks(self.home, &counts).await?;
        self.tx.add_updates(self.home, &self.updates).await
    }

    /// Before something is looked for by what may have changed.
    pub async fn write_tasks(&mut self) -> Result<(), StoreError> {
        for id in std::mem::take(&mut self.changed) {
            let Some(slot) = self.tasks.get_mut(&id) else { continue };
            match slot.unwritten {
                Unwritten::Nothing => {}
                Unwritten::Lease => {
                    let until = slot.kept.task.lease_until.map(Timestamp::as_millisecond);
                    self.tx.renew_lease(self.home, id, until).await?;
                }
                Unwritten::Task => self.tx.put_task(self.home, slot.from, &slot.kept).await?,
            }
            (slot.from, slot.unwritten) = (slot.kept.task.status, Unwritten::Nothing);
        }
        Ok(())
    }

    pub async fn task(&mut self, id: TaskId) -> Result<Kept, QueueError> {
        if let Some(slot) = self.tasks.get(&id) {
            return Ok(slot.kept.clone());
        }
        let kept = self.tx.task(self.home, id).await?.ok_or(QueueError::Unknown(id))?;
        Ok(self.met(kept))
    }

    /// The unfinished task of a claim; else the one that was finished last.
    pub async fn claimed(&mut self, target: &str, claim: &str) -> Result<Option<Kept>, StoreError> {
        self.write_tasks().await?;
        let found = self.tx.claimed(self.home, target, claim).await?;
        Ok(found.map(|kept| self.met(kept)))
    }

    /// Remembers a task that was read. What is known already is newer.
    pub fn met(&mut self, kept: Kept) -> Kept {
        match self.tasks.entry(kept.task.id) {
            Entry::Occupied(known) => known.get().kept.clone(),
            Entry::Vacant(place) => {
                let from = kept.task.status;
                place.insert(Slot { kept, from, unwritten: Unwritten::Nothing }).kept.clone()
            }
        }
    }

    /// The one way in which a status changes: the counts go with it. None: that cannot happen to it.
    pub fn act(&mut self, kept: &mut Kept, act: Act) -> Option<Status> {
        let task = &mut kept.task;
        let (from, to) = (task.status, task.status.after(act)?);
        if from != to {
            self.count(&task.target, from, task.priority, -1);
            self.count(&task.target, to, task.priority, 1);
            task.status = to;
        }
        Some(to)
    }

    pub fn count(&mut self, target: &Arc<str>, status: Status, priority: Priority, n: i64) {
        *self.counts.entry((target.clone(), status, priority)).or_default() += n;
        if status == Status::Pending
            && let Some(waiting) = self.waiting.get_mut(target)
        {
            *waiting.entry(priority).or_default() += n;
        }
    }

    /// How many wait that are done before a new one of this priority.
    pub async fn ahead_of(&mut self, target: &Arc<str>, priority: Priority) -> Result<i64, StoreError> {
        if !self.waiting.contains_key(target) {
            let mut waiting: BTreeMap<Priority, i64> = BTreeMap::new();
            for row in self.tx.counts_of(self.home, target).await? {
                if let (Some(Status::Pending), Some(priority)) =
                    (Status::parse(&row.status), Priority::of_rank(row.priority))
                {
                    *waiting.entry(priority).or_default() += row.n;
                }
            }
            for ((of, status, priority), n) in &self.counts {
                if of == target && *status == Status::Pending {
                    *waiting.entry(*priority).or_default() += n;
                }
            }
            self.waiting.insert(target.clone(), waiting);
        }
        let waiting = self.waiting.get(target).into_iter().flatten();
        Ok(waiting.filter(|(of, _)| **of >= priority).map(|(_, n)| n).sum())
    }

    /// Keeps a changed task.
    pub fn put(&mut self, kept: &Kept) {
        self.rung.tasks.insert(kept.task.target.clone());
        self.set(kept, Unwritten::Task);
    }

    /// Keeps a task of which only the lease has changed.
    pub fn put_lease(&mut self, kept: &Kept) {
        self.set(kept, Unwritten::Lease);
    }

    fn set(&mut self, kept: &Kept, unwritten: Unwritten) {
        if !kept.task.status.is_finished() {
            self.is_due(kept.task.lease_until);
            self.is_due(kept.task.deadline);
        }
        if let Some(slot) = self.tasks.get_mut(&kept.task.id) {
            slot.kept.clone_from(kept);
            if slot.unwritten == Unwritten::Nothing {
                self.changed.push(kept.task.id);
            }
            slot.unwritten = slot.unwritten.max(unwritten);
        }
    }

    pub fn is_due(&mut self, at: Option<Timestamp>) {
        self.due = self.due.into_iter().chain(at.map(Timestamp::as_millisecond)).min();
    }

    pub fn forget(&mut self, id: TaskId) {
        self.tasks.remove(&id);
    }

    /// Everything is read anew from here on. What was to be written is.
    pub fn forget_all(&mut self) {
        self.tasks.clear();
    }

    pub fn ring_tasks(&mut self, target: &Arc<str>) {
        self.rung.tasks.insert(target.clone());
    }

    /// The update that was taken under this name before.
    pub async fn said_before(&mut self, source: Option<&str>) -> Result<Option<i64>, StoreError> {
        let Some(source) = source else { return Ok(None) };
        match self.sources.get(source) {
            Some(seq) => Ok(Some(*seq)),
            None => self.tx.update_of(self.home, source).await,
        }
    }

    /// Keeps an update. Whoever gives a source has asked before whether it is new.
    pub fn say(
        &mut self,
        target: &Arc<str>,
        task: Option<TaskId>,
        kind: Kind,
        content: String,
        source: Option<String>,
    ) -> i64 {
        self.numbers.update += 1;
        let seq = self.numbers.update;
        if let Some(source) = &source {
            self.sources.insert(source.clone(), seq);
        }
        let (target, created_ms) = (target.clone(), self.now.as_millisecond());
        self.updates.push(NewUpdate { seq, task, target, kind, content, created_ms, source });
        self.rung.updates = true;
        seq
    }

    /// The same for what happened to a task.
    pub fn tell(&mut self, kept: &Kept, kind: Kind, content: impl Into<String>) -> i64 {
        self.say(&kept.task.target, Some(kept.task.id), kind, content.into(), None)
    }

    /// A target's agent was heard.
    pub async fn heard(&mut self, target: &str) -> Result<(), StoreError> {
        let now_ms = self.now.as_millisecond();
        if self.ears.hear(target, None, now_ms) {
            self.heard.push(target.to_owned());
            self.tx.heard(self.home, target, Some(now_ms), None).await?;
        }
        Ok(())
    }

    /// When a lease of this length ends that begins now.
    pub fn after(&self, lease_ms: i64) -> Option<Timestamp> {
        let lease = Duration::from_millis(u64::try_from(lease_ms).unwrap_or_default());
        Some(self.now.checked_add(lease).unwrap_or(Timestamp::MAX))
    }
}

/// The store does not know of them.
fn untell(ears: &Ears, heard: &[String]) {
    heard.iter().for_each(|name| ears.untold(name));
}
