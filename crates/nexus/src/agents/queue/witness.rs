//! The record's view of the queue: what the hub does to a task by itself is no call, and has a row all the same.

use std::fmt;
use std::sync::{Arc, OnceLock};

use nexus_core::audit::{Event, Row, Sink};
use nexus_core::text;

/// Where rows go, once it is known.
#[derive(Default)]
pub struct Witness(OnceLock<Arc<dyn Sink>>);

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Witness").field(&self.0.get().is_some()).finish()
    }
}

impl Witness {
    pub fn record_to(&self, audit: Arc<dyn Sink>) {
        let _ = self.0.set(audit);
    }

    /// A reason may hold words of others.
    pub fn note(&self, words: &str) {
        if let Some(audit) = self.0.get() {
            audit.post(Row::new(Event::Task).detail(text::clean(words)));
        }
    }
}
