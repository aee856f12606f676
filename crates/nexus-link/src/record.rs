//! What the record says of computers that come and go. A flood of them must not wash the rest of the record away, so
//! beyond some rate they are counted and told together.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use nexus_core::audit::{Event, Row, Sink};
use nexus_core::clock;
use parking_lot::Mutex;
use tracing::info;

use crate::computer::Computer;

/// Rows at once, and rows a second after that.
const BURST: i64 = 200;
const EACH_MS: i64 = 100;

pub struct Record {
    audit: Arc<dyn Sink>,
    budget: Mutex<Budget>,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record").finish_non_exhaustive()
    }
}

impl Record {
    pub fn new(audit: Arc<dyn Sink>) -> Self {
        Self { audit, budget: Mutex::new(Budget { free_at: clock::monotonic_ms(), untold: 0 }) }
    }

    pub fn linked(&self, computer: &Computer, from: IpAddr) {
        self.tell(|| format!("computer {} linked from {from}", computer.name()));
    }

    pub fn replaced(&self, computer: &Computer, from: IpAddr) {
        self.tell(|| format!("computer {} linked anew from {from}; its old link was closed", computer.name()));
    }

    pub fn went(&self, computer: &Computer, why: &str) {
        self.tell(|| format!("computer {} went: {why}", computer.name()));
    }

    pub fn refused(&self, from: IpAddr, why: &str) {
        self.tell(|| format!("a connection from {from} was refused: {why}"));
    }

    fn tell(&self, words: impl FnOnce() -> String) {
        let Some(untold) = self.budget.lock().take(clock::monotonic_ms()) else { return };
        let mut words = words();
        if untold > 0 {
            words = format!("{words} (before that {untold} comings and goings that were too many to record)");
        }
        let row = Row::new(Event::Link).detail(words);
        info!("{}", row.detail.as_deref().unwrap_or_default());
        self.audit.post(row);
    }
}

/// How many rows may still be written.
#[derive(Debug)]
struct Budget {
    /// When all of it will be there again, in milliseconds; it lies ahead by what was used.
    free_at: i64,
    untold: u64,
}

impl Budget {
    /// Takes one. The number of those that got none since the last one that did; none for those.
    fn take(&mut self, now: i64) -> Option<u64> {
        let free_at = self.free_at.max(now);
        if free_at - now >= BURST * EACH_MS {
            self.untold += 1;
            return None;
        }
        self.free_at = free_at + EACH_MS;
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_told_with_the_next_row() {
        let mut budget = Budget { free_at: 0, untold: 0 };
        assert!((0..BURST).all(|_| budget.take(5) == Some(0)));
        assert!((0..1000).all(|_| budget.take(5).is_none()));
        assert_eq!(budget.take(5 + EACH_MS), Some(1000));
        assert_eq!(budget.take(5 + EACH_MS), None);
        assert_eq!(budget.take(i64::MAX / 2), Some(1));
    }
}
