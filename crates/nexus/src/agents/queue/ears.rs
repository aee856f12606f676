//! When each target's agent, and each channel, was heard last.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// How old the store's knowledge may be, for other processes and for after a restart.
const OFTEN_ENOUGH_MS: i64 = 15_000;

/// What this process has heard. The store is told now and then.
#[derive(Debug, Default)]
pub struct Ears {
    heard: Mutex<HashMap<String, Heard>>,
    /// For a while nothing could be kept of what agents said.
    missed: AtomicBool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    pub at_ms: Option<i64>,
    pub trouble: Option<String>,
    told_ms: Option<i64>,
}

impl Ears {
    /// Something was heard, or is in trouble. True: the store is to be told.
    pub fn hear(&self, name: &str, trouble: Option<&str>, now_ms: i64) -> bool {
        let mut heard = self.heard.lock();
        let known = heard.entry(name.to_owned()).or_default();
        if trouble.is_none() {
            known.at_ms = Some(now_ms);
        }
        // The clock may have gone back.
        let told = known.told_ms.is_some_and(|told| (now_ms - told).abs() < OFTEN_ENOUGH_MS);
        if told && known.trouble.as_deref() == trouble {
            return false;
        }
        (known.trouble, known.told_ms) = (trouble.map(str::to_owned), Some(now_ms));
        true
    }

    /// The store was not told after all.
    pub fn untold(&self, name: &str) {
        if let Some(known) = self.heard.lock().get_mut(name) {
            known.told_ms = None;
        }
    }

    pub fn forget(&self, name: &str) {
        self.heard.lock().remove(name);
    }

    /// Somebody spoke, and the store did not take it.
    pub fn miss(&self) {
        self.missed.store(true, Ordering::Relaxed);
    }

    /// Whether somebody may have been missed since this was last asked: then a silence tells nothing of an agent.
    pub fn take_missed(&self) -> bool {
        self.missed.swap(false, Ordering::Relaxed)
    }

    pub fn all(&self) -> HashMap<String, Heard> {
        self.heard.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_is_told_now_and_then_and_of_every_change() {
        let ears = Ears::default();
        assert!(ears.hear("a", None, 0));
        assert!(!ears.hear("a", None, 1));
        assert!(ears.hear("a", Some("deaf"), 2));
        assert!(!ears.hear("a", Some("deaf"), 3));
        assert!(ears.hear("a", None, 4));
        assert!(ears.hear("a", None, 4 + OFTEN_ENOUGH_MS));
        assert!(ears.hear("a", None, 0), "the clock went back");
        assert!(ears.hear("b", None, 1));
    }

    #[test]
    fn trouble_is_not_being_heard() {
        let ears = Ears::default();
        ears.hear("a", None, 1);
        ears.hear("a", Some("deaf"), 2);
        assert_eq!((ears.all()["a"].at_ms, ears.all()["a"].trouble.as_deref()), (Some(1), Some("deaf")));
    }
}
