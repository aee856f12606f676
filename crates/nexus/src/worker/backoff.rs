//! How long to wait before the hub is tried again.

use std::time::Duration;

use uuid::Uuid;

const FIRST: Duration = Duration::from_millis(200);
pub const LONGEST: Duration = Duration::from_secs(30);

/// Doubles with every failure in a row, and never gives up.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Nothing has failed so far.
    pub fn is_fresh(&self) -> bool {
        self.failures == 0
    }

    pub fn next(&mut self) -> Duration {
        let wait = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        jittered(wait)
    }
}

/// Up to a fifth less: workers that lost their hub together do not come back together.
pub fn jittered(wait: Duration) -> Duration {
    let random = f64::from(u32::try_from(Uuid::new_v4().as_u128() & 0xffff).unwrap_or_default()) / 65_535.0;
    wait.mul_f64(0.8 + 0.2 * random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_half_a_minute() {
        let mut backoff = Backoff::default();
        for expected in [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0] {
            let wait = backoff.next().as_secs_f64();
            assert!((expected * 0.79..=expected * 1.01).contains(&wait), "{wait} for {expected}");
        }
    }
}
