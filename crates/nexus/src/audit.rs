//! The journal: takes audit rows from everywhere and writes them to the store, many in one commit.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::error;

use nexus_core::Chain;
use nexus_core::audit::{NotRecorded, Row, Sink};

use crate::store::Store;

/// Unwritten rows at which callers are made to wait for the store.
const HIGH_WATER: usize = 8_192;
/// Unwritten rows kept while the store refuses; beyond them the oldest are lost, and counted.
const MOST_UNWRITTEN: usize = 65_536;
/// Rows nobody waits for are gathered this long, so that one commit carries many.
const GATHER: Duration = Duration::from_millis(50);
/// Rows in one transaction.
const BATCH: usize = 2_048;
const RETRY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Journal {
    queue: Mutex<Queue>,
    posted: Notify,
    written: Notify,
    rows: AtomicU64,
    lost: AtomicU64,
}

#[derive(Default)]
struct Queue {
    rows: Vec<Row>,
    waiting: Vec<oneshot::Sender<Result<(), NotRecorded>>>,
    /// The store refused the last batch: callers are not made to wait for it.
    failing: bool,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("unwritten", &self.unwritten()).finish_non_exhaustive()
    }
}

impl Journal {
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
        self.queue.lock().rows.len()
    }

    /// Writes until told to stop, then writes what is left.
    pub async fn write_to(self: Arc<Self>, store: Store, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = self.posted.notified() => {}
                () = stop.cancelled() => {}
            }
            let hurried = !self.queue.lock().waiting.is_empty() || stop.is_cancelled();
            if !hurried {
                self.gather(&stop).await;
            }
            while self.write_batch(&store).await {}
            let refused = self.queue.lock().failing;
            if stop.is_cancelled() {
                return;
            }
            if refused {
                tokio::select! {
                    () = tokio::time::sleep(RETRY) => self.posted.notify_one(),
                    () = stop.cancelled() => {}
                }
            }
        }
    }

    /// Lets rows come together, unless somebody waits for one of them.
    async fn gather(&self, stop: &CancellationToken) {
        let hurry = async {
            loop {
                self.posted.notified().await;
                if !self.queue.lock().waiting.is_empty() {
                    return;
                }
            }
        };
        tokio::select! {
            () = tokio::time::sleep(GATHER) => {}
            () = hurry => {}
            () = stop.cancelled() => {}
        }
    }

    /// One commit. True: there may be more to write.
    async fn write_batch(&self, store: &Store) -> bool {
        let (rows, waiting) = {
            let mut queue = self.queue.lock();
            let count = queue.rows.len().min(BATCH);
            if count == 0 {
                return false;
            }
            let later = queue.rows.split_off(count);
            let rows = std::mem::replace(&mut queue.rows, later);
            // Those who wait are answered with the batch that empties the queue.
            let waiting = if queue.rows.is_empty() { std::mem::take(&mut queue.waiting) } else { Vec::new() };
            (rows, waiting)
        };
        match store.append(&rows).await {
            Ok(()) => {
                self.rows.fetch_add(rows.len() as u64, Ordering::Relaxed);
                self.queue.lock().failing = false;
                waiting.into_iter().for_each(|waiting| drop(waiting.send(Ok(()))));
                self.written.notify_waiters();
                true
            }
            Err(error) => {
                let reason = Chain(&error).to_string();
                error!(audit.rows = rows.len(), "the store did not take {} audit rows: {reason}", rows.len());
                self.put_back(rows);
                waiting.into_iter().for_each(|waiting| drop(waiting.send(Err(NotRecorded(reason.clone())))));
                self.written.notify_waiters();
                false
            }
        }
    }

    fn put_back(&self, mut rows: Vec<Row>) {
        let mut queue = self.queue.lock();
        queue.failing = true;
        rows.append(&mut queue.rows);
        let over = rows.len().saturating_sub(MOST_UNWRITTEN);
        rows.drain(..over);
        self.lost.fetch_add(over as u64, Ordering::Relaxed);
        queue.rows = rows;
    }

    fn push(&self, row: Row, waiting: Option<oneshot::Sender<Result<(), NotRecorded>>>) {
        let wake = {
            let mut queue = self.queue.lock();
            queue.rows.push(row);
            let hurry = waiting.is_some();
            queue.waiting.extend(waiting);
            hurry || queue.rows.len() == 1
        };
        if wake {
            self.posted.notify_one();
        }
    }
}

impl Sink for Journal {
    fn post(&self, row: Row) {
        self.push(row, None);
    }

    fn durable(&self, row: Row) -> BoxFuture<'_, Result<(), NotRecorded>> {
        let (done, written) = oneshot::channel();
        self.push(row, Some(done));
        written.map(|said| said.unwrap_or_else(|_| Err(NotRecorded("the hub is ending".to_owned())))).boxed()
    }

    fn backlog(&self) -> Option<BoxFuture<'_, ()>> {
        let full = || {
            let queue = self.queue.lock();
            queue.rows.len() >= HIGH_WATER && !queue.failing
        };
        if !full() {
            return None;
        }
        let wait = async move {
            loop {
                let written = self.written.notified();
                if !full() {
                    return;
                }
                written.await;
            }
        };
        Some(wait.boxed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_core::audit::Event;

    #[tokio::test]
    async fn a_durable_row_is_in_the_store_when_it_says_so_and_the_end_loses_none() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        let journal = Arc::new(Journal::default());
        let stop = CancellationToken::new();
        let writing = journal.clone().write_to(store.clone(), stop.clone());
        let using = async {
            journal.durable(Row::new(Event::Begun)).await.unwrap();
            assert_eq!(store.audit_rows().await.unwrap(), 1);
            (0..5_000).for_each(|_| journal.post(Row::new(Event::Call)));
            stop.cancel();
        };
        tokio::join!(writing, using);
        assert_eq!(store.audit_rows().await.unwrap(), 5_001);
    }

    #[tokio::test]
    async fn a_store_that_refuses_fails_the_write_and_keeps_the_rows() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        store.close().await;
        let journal = Arc::new(Journal::default());
        let stop = CancellationToken::new();
        let writing = journal.clone().write_to(store, stop.clone());
        let using = async {
            assert!(journal.durable(Row::new(Event::Begun)).await.is_err());
            assert_eq!(journal.unwritten(), 1);
            assert!(journal.backlog().is_none());
            stop.cancel();
        };
        tokio::join!(writing, using);
    }
}
