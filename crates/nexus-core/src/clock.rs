//! The one place that asks what time it is, so that nothing else has a hidden clock.

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

/// A new id that sorts by time of birth.
pub fn new_id() -> Uuid {
    Uuid::now_v7()
}
