//! The one place that asks what time it is, so that nothing else has a hidden clock.

use std::sync::LazyLock;
use std::time::Instant;

use jiff::Timestamp;
use uuid::Uuid;

/// Now, as a point in time.
#[allow(clippy::disallowed_methods, reason = "this is the shim")]
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// Milliseconds since 1970, the form the store keeps.
pub fn now_ms() -> i64 {
    now().as_millisecond()
}

/// Milliseconds that only ever grow, for idle times: the clock on the wall may jump.
pub fn monotonic_ms() -> i64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    i64::try_from(START.elapsed().as_millis()).unwrap_or(i64::MAX)
}

/// A new id that sorts by time of birth.
pub fn new_id() -> Uuid {
    Uuid::now_v7()
}
