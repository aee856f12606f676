//! How long to wait before a server is tried again.

use std::time::Duration;

use uuid::Uuid;

const FIRST: Duration = Duration::from_millis(250);

const LONGEST: Duration = Duration::from_secs(30);

/// A server that has been there is likely to be back soon: somebody is working on it, or its machine starts anew.
const LONGEST_OF_KNOWN: Duration = Duration::from_secs(5);

/// A server that does start is worth being there again soon, also when it goes again and again.
const LONGEST_AFTER_LOSS: Duration = Duration::from_secs(1);

/// So often in a row is no longer bad luck.
const MOST_LOSSES: u32 = 300;

/// After so long in health what was before is forgotten.
const HEALTHY: Duration = Duration::from_secs(60);

/// Doubles with every failure in a row; never gives up.
#[derive(Debug)]
pub struct Backoff {
    failures: u32,
    longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { failures: 0, longest: LONGEST }
    }
}

impl Backoff {
    /// It could not be connected.
    pub fn failed(&mut self) -> Duration {
        let wait = doubled(self.failures).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        jittered(wait)
    }

    /// It was connected for that long, and went. The first time it is tried again at once.
    pub fn lost(&mut self, lived: Duration) -> Duration {
        self.longest = LONGEST_OF_KNOWN;
        if lived >= HEALTHY {
            self.failures = 0;
        }
        let wait = match self.failures {
            0 => Duration::ZERO,
            few if few < MOST_LOSSES => doubled(few - 1).min(LONGEST_AFTER_LOSS),
            many => doubled(many - MOST_LOSSES + 2),
        };
        self.failures = self.failures.saturating_add(1);
        jittered(wait)
    }
}

fn doubled(times: u32) -> Duration {
    FIRST.saturating_mul(1 << times.min(16)).min(LONGEST)
}

/// A fifth less to a fifth more, so that servers that went together do not come back together.
fn jittered(wait: Duration) -> Duration {
    let random = f64::from(u32::try_from(Uuid::new_v4().as_u128() & 0xffff).unwrap_or_default()) / 65_535.0;
    wait.mul_f64(0.8 + 0.4 * random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn about(wait: Duration, expected: f64) {
        let wait = wait.as_secs_f64();
        assert!((expected * 0.8..=expected * 1.2).contains(&wait), "{wait} is not about {expected}");
    }

    #[test]
    fn waits_double_up_to_half_a_minute_and_go_on_for_ever() {
        let mut backoff = Backoff::default();
        for expected in [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
            about(backoff.failed(), expected);
        }
        for _ in 0..100 {
            about(backoff.failed(), 30.0);
        }
    }

    #[test]
    fn what_has_been_there_once_is_never_left_alone_for_long() {
        let mut backoff = Backoff::default();
        backoff.lost(HEALTHY);
        for expected in [0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0] {
            about(backoff.failed(), expected);
        }
    }

    #[test]
    fn what_was_there_is_tried_at_once_and_then_soon_and_what_never_stays_seldom() {
        let mut backoff = Backoff::default();
        for expected in [0.0, 0.25, 0.5, 1.0, 1.0, 1.0] {
            about(backoff.lost(Duration::from_secs(1)), expected);
        }
        about(backoff.lost(HEALTHY), 0.0);
        for _ in 1..MOST_LOSSES {
            backoff.lost(Duration::ZERO);
        }
        for expected in [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
            about(backoff.lost(Duration::ZERO), expected);
        }
    }
}
