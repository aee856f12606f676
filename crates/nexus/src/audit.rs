//! The journal: takes audit rows from everywhere and writes them to the store, many in one commit.

pub mod alive;
pub mod configuration;
pub mod log;
pub mod loki;
pub mod notes;
mod queue;
pub mod upkeep;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::error;

use nexus_core::audit::{NotRecorded, Row, Sink};
use nexus_core::tasks::panic_text;

use self::notes::Notes;
use self::queue::{Queue, Queued, Vouched, Waiting};
use crate::store::chain::{Appended, Chain, Mark};
use crate::store::sheaf::List;
use crate::store::{Store, StoreError};

/// Rows nobody waits for are gathered this long, so that one commit carries many.
const GATHER: Duration = Duration::from_millis(100);
/// How long a commit is put off for those who came with the last one.
const MUSTER: Duration = Duration::from_micros(300);
/// Rows of writes are found by session, tool and outcome after this at the latest.
const LIST_WITHIN: Duration = Duration::from_millis(250);
/// How often a store that refuses is tried again; a write tries it at once.
const RETRY: Duration = Duration::from_secs(1);
/// Somebody who reads the record waits this long for the newest rows.
const SOON: Duration = Duration::from_secs(2);
/// A store that takes longer for a batch is taken for one that refuses.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Default)]
pub struct Journal {
    queue: Mutex<Queue>,
    posted: Notify,
    written: Notify,
    /// Wakes the one who ships.
    shipping: Notify,
    rows: AtomicU64,
    lost: AtomicU64,
    /// Where rows stand that must outlive this process before the store has them.
    notes: OnceLock<Notes>,
}

/// What the writing has of its own.
struct Pen<'a> {
    store: &'a Store,
    chain: &'a mut Chain,
    /// How many were waiting for the last commit.
    told: usize,
    /// When rows were last made findable.
    listed: Instant,
}

impl Pen<'_> {
    /// Makes the rows of writes findable when no other rows come to do it with.
    async fn list(&mut self) {
        self.listed = Instant::now();
        let why = match timeout(PATIENCE, self.store.list(self.chain)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => nexus_core::Chain(&error).to_string(),
            Err(_) => format!("no answer in {} s", PATIENCE.as_secs()),
        };
        error!("written rows cannot be found by session, tool and outcome yet: {why}");
        tokio::time::sleep(RETRY).await;
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("unwritten", &self.unwritten()).finish_non_exhaustive()
    }
}

impl Journal {
    /// From here on notes are taken in these files.
    pub fn note_in(&self, notes: Notes) {
        let _ = self.notes.set(notes);
    }

    /// The store has so many rows of which there are notes, or will never have them.
    fn done_with(&self, notes: usize) {
        if let Some(kept) = self.notes.get() {
            kept.written(notes);
        }
    }

    /// Adds what earlier runs have written to the count.
    pub fn count_earlier(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// Rows in the store.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Rows that could not be kept because the store refused them for too long.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    pub fn unwritten(&self) -> usize {
        self.queue.lock().unwritten()
    }

    /// The store refuses: reads go on, writes do not run.
    pub fn is_failing(&self) -> bool {
        self.queue.lock().failing
    }

    /// Rows were written since the last call; comes back at once if there were any in between.
    pub async fn written(&self) {
        self.shipping.notified().await;
    }

    /// Writes until told to stop, then writes what is left and closes the chain.
    pub async fn write_to(self: Arc<Self>, store: Store, mut chain: Chain, stop: CancellationToken) {
        let mut pen = Pen { store: &store, chain: &mut chain, told: 0, listed: Instant::now() };
        while !stop.is_cancelled() {
            let retry = async {
                match self.is_failing() {
                    true => tokio::time::sleep(RETRY).await,
                    false => std::future::pending().await,
                }
            };
            if !self.queue.lock().is_waiting() {
                let quiet = async {
                    match pen.chain.has_unlisted() {
                        true => tokio::time::sleep(GATHER).await,
                        false => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = self.posted.notified() => {}
                    () = retry => {}
                    () = quiet => {
                        pen.list().await;
                        continue;
                    }
                    () = stop.cancelled() => {}
                }
            }
            self.gather(&stop).await;
            self.write_cuts(&mut pen).await;
            // What comes while a batch is written is gathered anew, unless somebody waits or it is a batch already.
            while self.write_batch(&mut pen).await && self.queue.lock().is_due() {
                self.write_cuts(&mut pen).await;
            }
        }
        let (left, cuts) = loop {
            let more = self.write_batch(&mut pen).await;
            let mut queue = self.queue.lock();
            // Closed in the moment in which it is empty, or when the store refuses: nothing slips in between.
            if queue.rows.is_empty() || !more {
                queue.closed = true;
                break (std::mem::take(&mut queue.rows), std::mem::take(&mut queue.cuts));
            }
        };
        self.lost.fetch_add(left.len() as u64, Ordering::Relaxed);
        if pen.chain.has_unlisted() {
            pen.list().await;
        }
        let waiting =
            left.into_iter().filter_map(|queued| queued.waiting).chain(cuts.into_iter().map(|cut| cut.waiting));
        tell(waiting, &Err(NotRecorded("the hub is ending".to_owned())));
        self.written.notify_waiters();
        if let Err(error) = store.close_chain(&chain.id).await {
            error!("the chain of audit rows was not closed: {}", nexus_core::Chain(&error));
        }
    }

    /// Those who were told of the last commit may be about to come back with their next rows: a short wait for as many
    /// as then makes one commit of what would be two.
    async fn muster(&self, last: usize) {
        let started = Instant::now();
        while last > 1 && self.queue.lock().awaited < last && started.elapsed() < MUSTER {
            tokio::task::yield_now().await;
        }
    }

    /// Lets rows come together, unless somebody waits for one of them.
    async fn gather(&self, stop: &CancellationToken) {
        let hurry = async {
            while !self.queue.lock().is_due() {
                self.posted.notified().await;
            }
        };
        tokio::select! {
            () = tokio::time::sleep(GATHER) => {}
            () = hurry => {}
            () = stop.cancelled() => {}
        }
    }

    /// One commit. True: there may be more to write.
    async fn write_batch(&self, pen: &mut Pen<'_>) -> bool {
        self.muster(pen.told).await;
        let rows = self.queue.lock().take();
        pen.told = rows.iter().filter(|queued| queued.waiting.is_some()).count();
        if rows.is_empty() {
            return false;
        }
        // Those who wait do not wait for the entries too, as long as these come soon.
        let list = if pen.told > 0 && pen.listed.elapsed() < LIST_WITHIN { List::Later } else { List::Now };
        let appended = appended(pen.store.append(pen.chain, &rows, list)).await;
        let written = appended.is_ok();
        match appended {
            Ok(Appended::Written) => {
                self.rows.fetch_add(rows.len() as u64, Ordering::Relaxed);
                if list == List::Now {
                    pen.listed = Instant::now();
                }
                self.queue.lock().written();
                self.done_with(rows.iter().filter(|queued| queued.noted).count());
                tell(rows.into_iter().filter_map(|queued| queued.waiting), &Ok(()));
                self.shipping.notify_one();
            }
            Ok(Appended::Earlier(written)) => {
                self.rows.fetch_add(written.len() as u64, Ordering::Relaxed);
                let noted = self.queue.lock().put_back_but(rows, &written.into_iter().collect());
                self.done_with(noted);
            }
            Err(reason) => {
                error!(audit.rows = rows.len(), "the store did not take {} audit rows: {reason}", rows.len());
                let refused = self.queue.lock().put_back(rows);
                self.lost.fetch_add(refused.lost as u64, Ordering::Relaxed);
                self.done_with(refused.noted);
                tell(refused.waiting.into_iter(), &Err(NotRecorded(reason)));
            }
        }
        self.written.notify_waiters();
        written
    }

    /// Rows with the marks they vouch for, each group in a commit of its own.
    async fn write_cuts(&self, pen: &mut Pen<'_>) {
        let cuts = std::mem::take(&mut self.queue.lock().cuts);
        for Vouched { rows, marks, waiting } in cuts {
            if rows.is_empty() {
                self.write_all(pen).await;
                let _ = waiting.send(Ok(()));
                continue;
            }
            let said = match appended(pen.store.append_marked(pen.chain, &rows, &marks, List::Now)).await {
                Ok(Appended::Written) => {
                    self.rows.fetch_add(rows.len() as u64, Ordering::Relaxed);
                    Ok(())
                }
                Ok(Appended::Earlier(written)) => {
                    self.rows.fetch_add(written.len() as u64, Ordering::Relaxed);
                    let written = written.into_iter().collect();
                    let noted = self.queue.lock().put_back_but(Vec::new(), &written);
                    self.done_with(noted);
                    Err(NotRecorded("the store is not sure of the rows before".to_owned()))
                }
                Err(reason) => Err(NotRecorded(reason)),
            };
            let _ = waiting.send(said);
        }
    }

    /// Everything that has come so far, to be read and found.
    async fn write_all(&self, pen: &mut Pen<'_>) {
        while self.write_batch(pen).await {}
        if pen.chain.has_unlisted() {
            pen.list().await;
        }
    }

    /// Comes back when what was posted before can be read and found, or soon.
    pub async fn settle(&self) {
        let _ = timeout(SOON, self.prune(Vec::new(), Vec::new())).await;
    }

    /// Records that rows are pruned, and marks them so, in one commit.
    pub async fn prune(&self, rows: Vec<Row>, marks: Vec<Mark>) -> Result<(), NotRecorded> {
        let (done, written) = oneshot::channel();
        {
            let mut queue = self.queue.lock();
            if queue.closed {
                return Err(NotRecorded("the hub is ending".to_owned()));
            }
            queue.cuts.push(Vouched { rows, marks, waiting: done });
        }
        self.posted.notify_one();
        written.await.unwrap_or_else(|_| Err(NotRecorded("the hub is ending".to_owned())))
    }

    fn push(&self, row: Row, waiting: Option<Waiting>, noted: bool) {
        let row = Box::new(row);
        let wake = {
            let mut queue = self.queue.lock();
            if queue.closed {
                drop(queue);
                return tell(waiting.into_iter(), &Err(NotRecorded("the hub is ending".to_owned())));
            }
            queue.push(Queued { row, waiting, noted })
        };
        if wake {
            self.posted.notify_one();
        }
    }

    fn is_full(&self) -> bool {
        self.queue.lock().is_full()
    }
}

/// What became of a batch, in words if it failed: by an error, by a panic or by taking too long.
async fn appended(appending: impl Future<Output = Result<Appended, StoreError>>) -> Result<Appended, String> {
    match timeout(PATIENCE, AssertUnwindSafe(appending).catch_unwind()).await {
        Ok(Ok(appended)) => appended.map_err(|error| nexus_core::Chain(&error).to_string()),
        Ok(Err(panic)) => Err(format!("a panic: {}", panic_text(&*panic))),
        Err(_) => Err(format!("no answer in {} s", PATIENCE.as_secs())),
    }
}

fn tell(waiting: impl Iterator<Item = Waiting>, said: &Result<(), NotRecorded>) {
    waiting.for_each(|waiting| drop(waiting.send(said.clone())));
}

impl Sink for Journal {
    fn post(&self, row: Row) {
        self.push(row, None, false);
    }

    fn durable(&self, row: Row) -> BoxFuture<'_, Result<(), NotRecorded>> {
        let (done, written) = oneshot::channel();
        self.push(row, Some(done), false);
        written.map(|said| said.unwrap_or_else(|_| Err(NotRecorded("the hub is ending".to_owned())))).boxed()
    }

    fn noted(&self, row: Row) -> Result<(), NotRecorded> {
        if self.is_failing() {
            return Err(NotRecorded("the store takes no rows at the moment".to_owned()));
        }
        if let Some(notes) = self.notes.get() {
            notes.take(&row).map_err(|error| NotRecorded(format!("no note of it could be taken: {error}")))?;
        }
        self.push(row, None, true);
        Ok(())
    }

    fn backlog(&self) -> Option<BoxFuture<'_, ()>> {
        if !self.is_full() {
            return None;
        }
        let wait = async move {
            loop {
                let written = self.written.notified();
                if !self.is_full() {
                    return;
                }
                written.await;
            }
        };
        Some(wait.boxed())
    }
}

#[cfg(test)]
mod tests;
