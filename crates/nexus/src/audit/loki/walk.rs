//! A walk through the record, from the oldest row that Loki may not have to the newest there was at its start.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use tracing::warn;

use crate::store::rows::Entry;
use crate::store::ship::{Lagging, Shipped, push_told};
use crate::store::{Store, StoreError};

/// How much is read and pushed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub rows: usize,
    pub bytes: usize,
}

/// What is known from walk to walk.
#[derive(Debug, Default)]
pub struct Course {
    /// All that lies before this is shipped, unless a writer's clock was wrong.
    pub clear: i64,
    /// Chains of which a walk did not find all: the next one starts where they truly are.
    astray: HashSet<String>,
}

pub struct Walk {
    chains: HashMap<String, Progress>,
    /// Chains whose end is not reached.
    open: usize,
    after: i64,
    over: bool,
}

struct Progress {
    /// The last row that was passed.
    seq: i64,
    pos: i64,
    /// Only what was there at the start: later rows may be seen before earlier ones.
    head: i64,
    /// The walk began where this chain is: a row that is not there does not exist.
    thorough: bool,
    /// A row is missing before the one that was found.
    astray: bool,
}

/// Rows in the order of writing, and how far each chain is when they are settled.
#[derive(Debug, Default)]
pub struct Batch {
    pub rows: Vec<Passed>,
}

/// A row that Loki does not have.
#[derive(Debug)]
pub struct Passed {
    pub shipped: Shipped,
    /// The row itself; none where it is not to be pushed.
    pub body: Option<String>,
}

/// The part of a body that says where it belongs. No escapes: both are of our making.
#[derive(Deserialize)]
struct Place<'a> {
    chain: &'a str,
    seq: i64,
}

impl Walk {
    pub fn new(lagging: &[Lagging], course: &Course) -> Self {
        let start = |chain: &Lagging| match course.astray.contains(&chain.id) {
            true => chain.shipped_pos,
            false => chain.likely_after().max(course.clear),
        };
        let after = lagging.iter().map(start).min().unwrap_or(i64::MAX);
        let progress = |chain: &Lagging| Progress {
            seq: chain.shipped_seq,
            pos: chain.shipped_pos,
            head: chain.head_seq,
            thorough: chain.shipped_pos >= after,
            astray: false,
        };
        let chains = lagging.iter().map(|chain| (chain.id.clone(), progress(chain))).collect();
        Self { chains, open: lagging.len(), after, over: false }
    }

    /// The next rows to push. None: there are no more.
    pub async fn next(&mut self, store: &Store, most: Size) -> Result<Option<Batch>, StoreError> {
        let mut batch = Batch::default();
        let mut bytes = 0;
        while !self.over && batch.rows.len() < most.rows && bytes < most.bytes {
            let page = store.page(self.after, most.rows, most.bytes).await?;
            self.over = page.is_empty();
            for entry in page {
                self.after = entry.pos;
                let size = entry.body.len();
                if let Some(passed) = self.pass(entry) {
                    bytes += size;
                    batch.rows.push(passed);
                }
                self.over |= self.open == 0;
                if self.over || batch.rows.len() == most.rows || bytes >= most.bytes {
                    break;
                }
            }
        }
        Ok((!batch.rows.is_empty()).then_some(batch))
    }

    fn pass(&mut self, entry: Entry) -> Option<Passed> {
        let Ok(Place { chain, seq }) = serde_json::from_str(&entry.body) else {
            warn!("the audit row at {} cannot be read, and is not shipped", entry.pos);
            return None;
        };
        let progress = self.chains.get_mut(chain)?;
        if progress.astray || seq <= progress.seq || seq > progress.head {
            return None;
        }
        if seq != progress.seq + 1 {
            if !progress.thorough {
                progress.astray = true;
                return None;
            }
            warn!(
                "rows {} to {} of the audit chain {chain} are not in the store, and are not shipped",
                progress.seq + 1,
                seq - 1
            );
        }
        (progress.seq, progress.pos) = (seq, entry.pos);
        self.open -= usize::from(seq == progress.head);
        let shipped = Shipped { chain: chain.to_owned(), seq, pos: entry.pos };
        let body = push_told(&entry.body).is_none().then_some(entry.body);
        Some(Passed { shipped, body })
    }

    /// What is left when the walk is over: chains that did not reach their end. Those that were looked for everywhere
    /// are at their end all the same.
    pub fn end(self, course: &mut Course, clear: i64) -> Vec<Shipped> {
        let mut ended = Vec::new();
        course.astray.clear();
        for (chain, progress) in self.chains {
            if progress.seq >= progress.head {
                continue;
            }
            if progress.thorough && !progress.astray {
                let (from, to) = (progress.seq + 1, progress.head);
                warn!("rows {from} to {to} of the audit chain {chain} are not in the store, and are not shipped");
                ended.push(Shipped { chain, seq: to, pos: progress.pos });
            } else {
                course.astray.insert(chain);
            }
        }
        if course.astray.is_empty() {
            course.clear = clear;
        }
        ended
    }
}

impl Course {
    /// Another walk is due at once.
    pub fn is_astray(&self) -> bool {
        !self.astray.is_empty()
    }
}

impl Batch {
    /// How far each chain is when the first `rows` are settled.
    pub fn upto(&self, rows: usize) -> Vec<Shipped> {
        let mut last: HashMap<&str, &Shipped> = HashMap::new();
        for passed in &self.rows[..rows] {
            last.insert(&passed.shipped.chain, &passed.shipped);
        }
        last.into_values().cloned().collect()
    }
}

#[cfg(test)]
mod tests;
