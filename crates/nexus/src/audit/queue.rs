//! Rows on their way to the store: what waits, who waits for it, and what is given back when the store refuses.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};

use tokio::sync::oneshot;
use uuid::Uuid;

use nexus_core::audit::{Event, NotRecorded, Row};

use crate::store::chain::Mark;

/// Rows in one transaction.
const BATCH: usize = 4_096;
/// Unwritten rows, and their bytes, at which callers are made to wait for the store.
const HIGH_WATER: usize = 8_192;
const HIGH_WATER_BYTES: usize = 32 * 1024 * 1024;
/// Unwritten rows kept while the store refuses; beyond them the oldest are lost, and counted.
const MOST_UNWRITTEN: usize = 32_768;

pub(super) type Waiting = oneshot::Sender<Result<(), NotRecorded>>;

#[derive(Default)]
pub(super) struct Queue {
    pub rows: Vec<Queued>,
    /// Calls of other servers whose beginning is still here, and where.
    begun: HashMap<Uuid, usize>,
    bytes: usize,
    /// Rows that somebody waits for.
    pub awaited: usize,
    /// Rows that vouch for what is pruned with them.
    pub cuts: Vec<Vouched>,
    /// Rows taken out and not yet written.
    in_hand: usize,
    /// The store refused the last batch: callers are not made to wait for it.
    pub failing: bool,
    /// Nobody writes any more.
    pub closed: bool,
}

pub(super) struct Queued {
    /// Boxed: a row is large, and it moves from list to list.
    pub row: Box<Row>,
    /// Who waits until it is safe. Told with its batch, whatever comes behind it.
    pub waiting: Option<Waiting>,
    /// There is a note of it.
    pub noted: bool,
}

impl Borrow<Row> for Queued {
    fn borrow(&self) -> &Row {
        &self.row
    }
}

/// Rows that are written together with the marks they vouch for.
pub(super) struct Vouched {
    pub rows: Vec<Row>,
    pub marks: Vec<Mark>,
    pub waiting: Waiting,
}

/// What became of rows that the store refused.
pub(super) struct Refused {
    pub waiting: Vec<Waiting>,
    pub lost: usize,
    /// Of the lost, those of which there are notes.
    pub noted: usize,
}

impl Queue {
    /// Rows that the store does not have yet.
    pub fn unwritten(&self) -> usize {
        self.rows.len() + self.in_hand
    }

    /// There is something to write, and the store would take it.
    pub fn is_waiting(&self) -> bool {
        !(self.failing || self.rows.is_empty() && self.cuts.is_empty())
    }

    /// Waiting for more would gain nothing.
    pub fn is_due(&self) -> bool {
        self.awaited > 0 || self.rows.len() >= BATCH || !self.cuts.is_empty()
    }

    pub fn is_full(&self) -> bool {
        !self.failing && !self.closed && (self.rows.len() >= HIGH_WATER || self.bytes >= HIGH_WATER_BYTES)
    }

    /// Puts a row in. The end of a noted call takes the place of its beginning, where the store has not even seen that:
    /// then one row says it all. True: the writer is to be woken.
    pub fn push(&mut self, queued: Queued) -> bool {
        let call = queued.row.call.as_ref().map(|call| call.id);
        let hurry = queued.waiting.is_some();
        self.awaited += usize::from(hurry);
        self.bytes += queued.row.size();
        if queued.row.event == Event::Call
            && !self.begun.is_empty()
            && let Some(place) = call.and_then(|call| self.begun.remove(&call))
        {
            self.bytes -= self.rows[place].row.size();
            self.rows[place].row = queued.row;
            return false;
        }
        if let (true, Some(call)) = (queued.noted, call) {
            self.begun.insert(call, self.rows.len());
        }
        self.rows.push(queued);
        hurry || self.rows.len() == 1 || self.rows.len() == BATCH
    }

    /// The next batch.
    pub fn take(&mut self) -> Vec<Queued> {
        let count = self.rows.len().min(BATCH);
        let later = self.rows.split_off(count);
        let now = std::mem::replace(&mut self.rows, later);
        self.count_anew();
        self.in_hand = count;
        now
    }

    /// The store has what was taken.
    pub fn written(&mut self) {
        (self.failing, self.in_hand) = (false, 0);
    }

    /// Keeps what was refused for a later try; but whoever waits, for any row, is told now, and as their writes will not
    /// run, those rows are not kept.
    pub fn put_back(&mut self, taken: Vec<Queued>) -> Refused {
        let mut waiting = Vec::new();
        for queued in self.with_in_front(taken) {
            match queued.waiting {
                Some(one) => waiting.push(one),
                None => self.rows.push(queued),
            }
        }
        let lost = self.rows.len().saturating_sub(MOST_UNWRITTEN);
        let noted = self.rows.drain(..lost).filter(|dropped| dropped.noted).count();
        self.count_anew();
        (self.failing, self.in_hand) = (true, 0);
        Refused { waiting, lost, noted }
    }

    /// Puts rows back in front, but for those that are written already. Gives how many of these there are notes of.
    pub fn put_back_but(&mut self, taken: Vec<Queued>, written: &HashSet<Uuid>) -> usize {
        let all = self.with_in_front(taken).into_iter();
        let (done, left): (Vec<_>, Vec<_>) = all.partition(|queued| written.contains(&queued.row.id));
        self.rows = left;
        self.count_anew();
        self.written();
        done.iter().filter(|done| done.noted).count()
    }

    /// Takes everything out, with these before it.
    fn with_in_front(&mut self, mut first: Vec<Queued>) -> Vec<Queued> {
        first.append(&mut self.rows);
        first
    }

    /// Rows have moved: places and sums are no longer what they were.
    fn count_anew(&mut self) {
        self.begun.clear();
        self.bytes = self.rows.iter().map(|queued| queued.row.size()).sum();
        self.awaited = self.rows.iter().filter(|queued| queued.waiting.is_some()).count();
    }
}
