//! What time it is for the queue. Tests set it.

#[cfg(test)]
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;

use nexus_core::clock;

#[derive(Clone, Debug)]
pub enum Clock {
    Real,
    #[cfg(test)]
    Set(Arc<AtomicI64>),
}

impl Clock {
    /// To the millisecond, as the store keeps it.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.now_ms()).unwrap_or_default()
    }

    pub fn now_ms(&self) -> i64 {
        match self {
            Clock::Real => clock::now_ms(),
            #[cfg(test)]
            Clock::Set(at) => at.load(Ordering::Relaxed),
        }
    }
}
