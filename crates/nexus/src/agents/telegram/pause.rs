//! When to try again.

use std::time::Duration;

use uuid::Uuid;

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);

/// Doubles with every failure, up to a minute.
#[derive(Debug, Default)]
pub struct Pause {
    failures: u32,
}

impl Pause {
    /// Some way off the plain doubling: two hubs that poll for one bot should not meet again and again.
    pub fn next(&mut self) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.failures.min(7)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        let chance = f64::from(Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
        whole.mul_f64(0.5 + chance / 2.0)
    }

    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_minute_and_never_end() {
        let mut pause = Pause::default();
        for _ in 0..8 {
            pause.next();
        }
        for _ in 0..100 {
            let next = pause.next();
            assert!(next >= LONGEST / 2 && next <= LONGEST, "{next:?}");
        }
        pause.reset();
        assert!(pause.next() <= FIRST);
    }
}
