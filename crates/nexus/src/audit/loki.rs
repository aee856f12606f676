//! Ships the record to Loki, oldest first, and remembers how far it came: an outage of Loki loses nothing.
//!
//! Rows are read from the store, never from memory. A push that fails is tried again for ever; one that is refused is
//! taken apart ([`sift`]) until only what Loki will never take is left, and that is set aside.

#[cfg(test)]
mod bench;
mod line;
mod pause;
mod push;
mod sift;
mod walk;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use nexus_core::{Chain, clock};

use super::Journal;
use crate::store::position::{position, written_ms};
use crate::store::ship::{Aside, LATEST_COMMIT_MS, Lagging};
use crate::store::{Store, StoreError};

use line::Line;
use pause::{Appetite, Pause};
pub use push::Loki;
use push::{NotNow, Trouble};
use sift::Sift;
use walk::{Batch, Course, Walk};

/// After a row is written others are waited for, so that a burst is one push.
const GATHER: Duration = Duration::from_secs(1);
/// How often is looked for rows that other processes wrote: nobody tells us of those.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// What the last push may take when the hub ends.
const LAST_TRY: Duration = Duration::from_secs(2);
/// Between two warnings of rows set aside.
const QUIET: Duration = Duration::from_secs(60);
const LONGEST_REASON: usize = 500;

/// Where shipping stands, for `/health`. All zero where nothing is shipped.
#[derive(Debug, Default)]
pub struct Standing {
    unshipped: AtomicI64,
    aside: AtomicI64,
    /// When the oldest row that waits was written; 0: none waits.
    oldest_ms: AtomicI64,
}

impl Standing {
    /// Rows that Loki does not have yet.
    pub fn unshipped(&self) -> i64 {
        self.unshipped.load(Ordering::Relaxed)
    }

    /// Rows that Loki refused for good.
    pub fn aside(&self) -> i64 {
        self.aside.load(Ordering::Relaxed)
    }

    /// Seconds since the oldest row that waits was written.
    pub fn lag_s(&self) -> i64 {
        match self.oldest_ms.load(Ordering::Relaxed) {
            0 => 0,
            oldest => (clock::now_ms() - oldest).max(0) / 1_000,
        }
    }
}

/// Ships the rows of one data folder. Only the holder of its lock may run one.
#[derive(Debug)]
pub struct Shipper {
    store: Store,
    /// The data folder whose chains are ours to ship.
    home: String,
    loki: Loki,
    journal: Arc<Journal>,
    standing: Arc<Standing>,
    /// Cancelled when somebody else becomes the holder.
    given_way: CancellationToken,
    /// How far it came, for the last try.
    came: Mutex<Course>,
}

/// Why shipping cannot go on now.
enum Held {
    Loki(NotNow),
    Store(StoreError),
}

impl From<StoreError> for Held {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// What the loop remembers.
#[derive(Default)]
struct Memory {
    course: Course,
    appetite: Appetite,
    pause: Pause,
    failing: Option<Failing>,
    /// When rows set aside were last counted.
    counted: Option<Instant>,
    /// When rows set aside were last told, and how many have come since.
    told_aside: Option<Instant>,
    untold_aside: usize,
}

/// A time in which it does not work.
struct Failing {
    since: Instant,
    tries: u32,
    /// What was said of it: one warning each.
    told: Vec<Trouble>,
}

impl Shipper {
    pub fn new(
        store: Store,
        home: String,
        loki: Loki,
        journal: Arc<Journal>,
        standing: Arc<Standing>,
        given_way: CancellationToken,
    ) -> Self {
        Self { store, home, loki, journal, standing, given_way, came: Mutex::default() }
    }

    /// Runs until told to stop, or until somebody else is the holder.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut memory = Memory::default();
        let working = async {
            loop {
                match self.catch_up(&mut memory).await {
                    Ok(()) => {
                        tokio::select! {
                            () = self.journal.written() => sleep(GATHER).await,
                            () = sleep(LOOK_AGAIN) => {}
                        }
                    }
                    Err(held) => {
                        let wait = memory.held(&held, self.loki.url());
                        self.wait(wait).await;
                    }
                }
            }
        };
        tokio::select! {
            () = working => {}
            () = stop.cancelled() => {}
            () = self.given_way.cancelled() => {}
        }
        *self.came.lock() = memory.course;
    }

    /// One try at the end, for the rows that the ending itself made.
    pub async fn last(&self) {
        if !self.given_way.is_cancelled() {
            let course = std::mem::take(&mut *self.came.lock());
            let _ = timeout(LAST_TRY, self.catch_up(&mut Memory { course, ..Memory::default() })).await;
        }
    }

    /// Waits, and keeps `/health` true meanwhile.
    async fn wait(&self, whole: Duration) {
        let until = Instant::now() + whole;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            sleep(left.min(LOOK_AGAIN)).await;
            if let Ok(lagging) = self.store.lagging(&self.home).await {
                self.count(&lagging);
            }
        }
    }

    /// Ships all that was written when it began.
    async fn catch_up(&self, memory: &mut Memory) -> Result<(), Held> {
        loop {
            let clear = position(clock::now_ms() - LATEST_COMMIT_MS);
            let lagging = self.store.lagging(&self.home).await?;
            self.count(&lagging);
            if memory.counted.is_none_or(|counted| counted.elapsed() > QUIET) {
                self.standing.aside.store(self.store.aside().await?, Ordering::Relaxed);
                memory.counted = Some(Instant::now());
            }
            if lagging.is_empty() {
                memory.course.clear = clear;
                return Ok(());
            }
            let mut walk = Walk::new(&lagging, &memory.course);
            while let Some(batch) = walk.next(&self.store, memory.appetite.size()).await? {
                self.offer(batch, memory).await?;
            }
            let ended = walk.end(&mut memory.course, clear);
            self.store.shipped(&ended, &[]).await?;
            if !memory.course.is_astray() {
                self.standing.oldest_ms.store(0, Ordering::Relaxed);
                return Ok(());
            }
        }
    }

    /// Pushes a batch, and notes what became of it.
    async fn offer(&self, batch: Batch, memory: &mut Memory) -> Result<(), Held> {
        let oldest = batch.rows.iter().find(|passed| passed.body.is_some()).map_or(0, |passed| passed.shipped.pos);
        if oldest != 0 {
            self.standing.oldest_ms.store(written_ms(oldest), Ordering::Relaxed);
        }
        let (batch, lines) = rendered(batch).await?;
        let mut sift = Sift::new(lines.len());
        while let Some(piece) = sift.next() {
            sift.came(self.loki.push(lines.clone(), piece).await);
        }
        let Sift { settled, aside, too_large, stopped, .. } = sift;

        // Rows that are not pushed go with the ones before them.
        let whole = settled == lines.len();
        let passed = match lines.get(settled) {
            Some(next) => batch.rows.iter().take_while(|passed| passed.shipped.pos < next.pos).count(),
            None => batch.rows.len(),
        };
        let reason =
            |reason: &str| nexus_core::text::cut(&nexus_core::text::clean(reason), LONGEST_REASON).into_owned();
        let aside: Vec<Aside> =
            aside.iter().map(|(row, why)| Aside { pos: lines[*row].pos, reason: reason(why) }).collect();
        self.store.shipped(&batch.upto(passed), &aside).await?;
        self.count(&self.store.lagging(&self.home).await?);
        self.standing.aside.fetch_add(i64::try_from(aside.len()).unwrap_or_default(), Ordering::Relaxed);
        memory.set_aside(&aside);

        if too_large || stopped.as_ref().is_some_and(NotNow::is_too_fast) {
            memory.appetite.less();
        } else if whole {
            memory.appetite.more();
        }
        match stopped {
            Some(why) => Err(Held::Loki(why)),
            None => {
                if !lines.is_empty() {
                    memory.works(self.loki.url());
                }
                Ok(())
            }
        }
    }

    fn count(&self, lagging: &[Lagging]) {
        self.standing.unshipped.store(lagging.iter().map(Lagging::rows).sum(), Ordering::Relaxed);
        if lagging.is_empty() {
            self.standing.oldest_ms.store(0, Ordering::Relaxed);
        }
    }
}

/// The lines of a batch. Off the threads that answer calls: a full batch takes milliseconds.
async fn rendered(batch: Batch) -> Result<(Batch, Arc<Vec<Line>>), Held> {
    let work = spawn_blocking(move || {
        let mut batch = batch;
        let mut lines = Vec::with_capacity(batch.rows.len());
        for passed in &mut batch.rows {
            let pos = passed.shipped.pos;
            let Some(body) = passed.body.take() else { continue };
            match Line::of(pos, written_ms(pos), &body) {
                Ok(line) => lines.push(line),
                Err(error) => warn!("the audit row at {pos} cannot be read, and is not shipped: {error}"),
            }
        }
        (batch, Arc::new(lines))
    });
    work.await.map_err(|_| Held::Loki(NotNow::ours("a panic while rows were prepared")))
}

impl Memory {
    /// How long to wait now. Says once what is wrong, and again when something else is wrong.
    fn held(&mut self, held: &Held, url: &str) -> Duration {
        let (trouble, why, asked) = match held {
            Held::Loki(why) => (why.trouble, why.to_string(), why.retry_after),
            Held::Store(error) => (Trouble::Store, Chain(error).to_string(), None),
        };
        let failing = self.failing.get_or_insert_with(|| Failing { since: Instant::now(), tries: 0, told: Vec::new() });
        failing.tries += 1;
        if !failing.told.contains(&trouble) {
            failing.told.push(trouble);
            let hint = trouble.hint();
            warn!("the audit record does not get to Loki at {url}: {why}; it is kept, and tried again for ever{hint}");
        }
        self.pause.after_failure(asked)
    }

    fn works(&mut self, url: &str) {
        self.pause.reset();
        if let Some(Failing { since, tries, .. }) = self.failing.take() {
            let seconds = since.elapsed().as_secs();
            info!("the audit record gets to Loki at {url} again, after {tries} failed tries in {seconds} s");
        }
    }

    fn set_aside(&mut self, aside: &[Aside]) {
        self.untold_aside += aside.len();
        let Some(last) = aside.last() else { return };
        if self.told_aside.is_none_or(|told| told.elapsed() > QUIET) {
            let (rows, reason) = (self.untold_aside, &last.reason);
            warn!(
                audit.rows = rows,
                "Loki refused audit rows for good; {rows} are set aside, the last because: {reason}"
            );
            (self.told_aside, self.untold_aside) = (Some(Instant::now()), 0);
        }
    }
}
