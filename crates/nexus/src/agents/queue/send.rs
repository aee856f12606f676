//! Messages become tasks: those that came together are written together.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::batch::Batch;
use super::writer::Asked;
use super::{NewTask, Sent};
use crate::agents::task::{Act, Call, Kind, Priority, Status, TaskId, content_hash};
use crate::store::StoreError;
use crate::store::tasks::Fresh;

/// Running tasks that are stopped in one go, of each status: they may be long.
const STOPPED_AT_ONCE: i64 = 100;
/// Tasks that a STOP tells of by name.
const NAMED: usize = 100;

/// A message, and what can be known of it beforehand.
#[derive(Debug)]
pub struct Sending {
    task: NewTask,
    hash: [u8; 32],
    call: Call,
}

impl Sending {
    pub fn new(mut task: NewTask) -> Self {
        let call = Call::of(&task.content);
        if call != Call::Ordinary {
            task.priority = Priority::Urgent;
        }
        Self { hash: content_hash(&task.content), call, task }
    }

    fn fresh(&self, id: TaskId, now: Timestamp) -> Fresh<'_> {
        Fresh {
            number: id.0,
            target: &self.task.target,
            content: &self.task.content,
            hash: &self.hash,
            priority: self.task.priority,
            sender: &self.task.sender,
            idempotency_key: self.task.idempotency_key.as_deref(),
            max_attempts: i64::from(self.task.max_attempts.max(1)),
            created_ms: now.as_millisecond(),
            deadline_ms: self.task.deadline.map(Timestamp::as_millisecond),
        }
    }

    /// Its sender and its key, for a task that is there.
    fn key(&self, id: TaskId) -> Option<(&str, &str, TaskId)> {
        Some((&self.task.sender, self.task.idempotency_key.as_deref()?, id))
    }
}

type Asking<'a> = &'a mut Asked<Sending, Sent>;

/// Ordinary ones in one go; one that stops others by itself, in its place among them.
pub async fn make_all(mut asked: Vec<Asking<'_>>, batch: &mut Batch<'_>) -> Result<(), StoreError> {
    batch.write_tasks().await?;
    let mut rest = &mut asked[..];
    while let Some(first) = rest.first() {
        let alike = match first.what.call {
            Call::Ordinary => rest.iter().take_while(|one| one.what.call == Call::Ordinary).count(),
            Call::Stop | Call::Interrupt => 1,
        };
        let (now, later) = rest.split_at_mut(alike);
        let mut known = Known::of(now, batch).await?;
        match now {
            [one] if one.what.call != Call::Ordinary => interrupt(one, &known, batch).await?,
            several => queue(several, &mut known, batch).await?,
        }
        rest = later;
    }
    Ok(())
}

/// Which of these messages are there already.
#[derive(Debug, Default)]
struct Known {
    words: HashMap<(Arc<str>, Vec<u8>), TaskId>,
    keys: HashMap<(String, String), TaskId>,
}

impl Known {
    async fn of(asked: &[Asking<'_>], batch: &mut Batch<'_>) -> Result<Self, StoreError> {
        let mut hashes: HashMap<&Arc<str>, Vec<&[u8]>> = HashMap::new();
        let mut keys: HashMap<&str, Vec<&str>> = HashMap::new();
        for Sending { task, hash, .. } in asked.iter().map(|asked| &asked.what) {
            hashes.entry(&task.target).or_default().push(hash);
            if let Some(key) = &task.idempotency_key {
                keys.entry(&task.sender).or_default().push(key);
            }
        }
        let mut known = Self::default();
        for (target, hashes) in hashes {
            for (number, hash) in batch.tx.same_words(batch.home, target, &hashes).await? {
                known.words.insert((target.clone(), hash), TaskId(number));
            }
        }
        for (sender, keys) in keys {
            for (number, key) in batch.tx.same_key(batch.home, sender, &keys).await? {
                known.keys.insert((sender.to_owned(), key), TaskId(number));
            }
        }
        Ok(known)
    }

    fn find(&self, Sending { task, hash, .. }: &Sending) -> Option<There> {
        let key = task.idempotency_key.as_ref().map(|key| (task.sender.clone(), key.clone()));
        if let Some(id) = key.as_ref().and_then(|key| self.keys.get(key)) {
            return Some(There { id: *id, new_key: false });
        }
        let id = self.words.get(&(task.target.clone(), hash.to_vec()))?;
        Some(There { id: *id, new_key: key.is_some() })
    }

    fn add(&mut self, Sending { task, hash, .. }: &Sending, id: TaskId) {
        self.words.insert((task.target.clone(), hash.to_vec()), id);
        if let Some(key) = &task.idempotency_key {
            self.keys.insert((task.sender.clone(), key.clone()), id);
        }
    }
}

/// A message that is there already.
#[derive(Clone, Copy, Debug)]
struct There {
    id: TaskId,
    /// It has a key that means this task from now on, also when that is finished.
    new_key: bool,
}

async fn queue(asked: &mut [Asking<'_>], known: &mut Known, batch: &mut Batch<'_>) -> Result<(), StoreError> {
    let (mut new, mut keys) = (Vec::with_capacity(asked.len()), Vec::new());
    for (nth, asked) in asked.iter_mut().enumerate() {
        if let Some(There { id, new_key }) = known.find(&asked.what) {
            if new_key {
                known.add(&asked.what, id);
                keys.push((nth, id));
            }
            asked.done = Some(Ok(Sent::Duplicate { id }));
            continue;
        }
        let id = number(batch);
        let position = 1 + ahead(&asked.what, batch).await?;
        known.add(&asked.what, id);
        asked.done = Some(Ok(Sent::Queued { id, position, stopped: Vec::new() }));
        new.push((nth, id));
    }
    let now = batch.now;
    let rows: Vec<Fresh<'_>> = new.iter().map(|(nth, id)| asked[*nth].what.fresh(*id, now)).collect();
    batch.tx.add_tasks(batch.home, &rows).await?;
    let keys: Vec<_> = keys.iter().filter_map(|(nth, id)| asked[*nth].what.key(*id)).collect();
    batch.tx.add_keys(batch.home, &keys).await
}

fn number(batch: &mut Batch<'_>) -> TaskId {
    batch.numbers.task += 1;
    TaskId(batch.numbers.task)
}

/// Counts a new task, and tells how many are done before it.
async fn ahead(Sending { task, .. }: &Sending, batch: &mut Batch<'_>) -> Result<i64, StoreError> {
    let ahead = batch.ahead_of(&task.target, task.priority).await?;
    batch.count(&task.target, Status::Pending, task.priority, 1);
    batch.is_due(task.deadline);
    batch.ring_tasks(&task.target);
    Ok(ahead)
}

/// Running work ends, and this comes next. A bare STOP is done with that.
async fn interrupt(asked: &mut Asking<'_>, known: &Known, batch: &mut Batch<'_>) -> Result<(), StoreError> {
    if let Some(There { id, new_key }) = known.find(&asked.what) {
        if let Some(key) = asked.what.key(id).filter(|_| new_key) {
            batch.tx.add_keys(batch.home, &[key]).await?;
        }
        asked.done = Some(Ok(Sent::Duplicate { id }));
        return Ok(());
    }
    let id = number(batch);
    let mut position = 1 + ahead(&asked.what, batch).await?;
    batch.tx.add_tasks(batch.home, &[asked.what.fresh(id, batch.now)]).await?;
    let stopped = stop_all(&asked.what.task.target, &format!("stopped by {id}"), batch).await?;
    if asked.what.call == Call::Stop
        && let Some(kept) = batch.tx.task(batch.home, id).await?
    {
        let mut kept = batch.met(kept);
        let result = what_stopped(&stopped);
        // Nobody has to take it: it is as if somebody had, and were done.
        batch.act(&mut kept, Act::Claim);
        batch.act(&mut kept, Act::Complete);
        (kept.task.completed, kept.task.result) = (Some(batch.now), Some(result.clone()));
        batch.put(&kept);
        batch.tell(&kept, Kind::Complete, result);
        position = 0;
    }
    batch.write_tasks().await?;
    asked.done = Some(Ok(Sent::Queued { id, position, stopped }));
    Ok(())
}

/// Ends all that runs on a target, however many there are; their ids in order.
async fn stop_all(target: &str, why: &str, batch: &mut Batch<'_>) -> Result<Vec<TaskId>, StoreError> {
    let mut stopped = Vec::new();
    loop {
        let before = stopped.len();
        let running = batch.tx.running_tasks(batch.home, target, STOPPED_AT_ONCE).await?;
        let were_all = i64::try_from(running.len()).is_ok_and(|found| found < STOPPED_AT_ONCE);
        for kept in running {
            let mut kept = batch.met(kept);
            if super::settle::end(batch, &mut kept, Act::Cancel, Kind::Cancelled, why) {
                stopped.push(kept.task.id);
            }
        }
        batch.write_tasks().await?;
        stopped[before..].iter().for_each(|id| batch.forget(*id));
        if were_all || stopped.len() == before {
            stopped.sort_unstable();
            return Ok(stopped);
        }
    }
}

fn what_stopped(stopped: &[TaskId]) -> String {
    let names = stopped.iter().take(NAMED).map(TaskId::to_string).collect::<Vec<_>>().join(", ");
    match stopped.len() {
        0 => "nothing ran".to_owned(),
        all if all > NAMED => format!("stopped {names} and {} more", all - NAMED),
        _ => format!("stopped {names}"),
    }
}
