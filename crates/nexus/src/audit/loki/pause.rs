//! When to try again, and with how much.

use std::time::Duration;

use uuid::Uuid;

use super::walk::Size;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// A server that asks for more than this has forgotten us.
const LONGEST_ASKED: Duration = Duration::from_secs(600);

const MOST: Size = Size { rows: 1_000, bytes: 1_000_000 };
const LEAST: Size = Size { rows: 10, bytes: 10_000 };

/// Grows with every failure, from one second to a minute.
#[derive(Debug, Default)]
pub struct Pause {
    failures: u32,
}

impl Pause {
    /// How long to wait now. Some way off the plain doubling, so that hubs which lost the same server do not come back together.
    pub fn after_failure(&mut self, asked: Option<Duration>) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.failures.min(6)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        let chance = f64::from(Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
        whole.mul_f64(0.5 + chance / 2.0).max(asked.unwrap_or_default().min(LONGEST_ASKED))
    }

    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// How much is pushed at once: less when it was too much, more again when it goes well.
#[derive(Clone, Copy, Debug)]
pub struct Appetite(Size);

impl Default for Appetite {
    fn default() -> Self {
        Self(MOST)
    }
}

impl Appetite {
    pub fn size(self) -> Size {
        self.0
    }

    pub fn less(&mut self) {
        self.0 = Size { rows: (self.0.rows / 2).max(LEAST.rows), bytes: (self.0.bytes / 2).max(LEAST.bytes) };
    }

    pub fn more(&mut self) {
        self.0 = Size { rows: (self.0.rows * 2).min(MOST.rows), bytes: (self.0.bytes * 2).min(MOST.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_minute_and_start_anew_after_a_success() {
        let mut pause = Pause::default();
        for most in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            let now = pause.after_failure(None).as_secs_f64();
            assert!(now >= f64::from(most) / 2.0 && now <= f64::from(most), "{now} of {most}");
        }
        pause.reset();
        assert!(pause.after_failure(None) <= FIRST);
    }

    #[test]
    fn a_server_is_left_alone_for_as_long_as_it_asks_but_not_for_ever() {
        let mut pause = Pause::default();
        assert_eq!(pause.after_failure(Some(Duration::from_secs(90))), Duration::from_secs(90));
        assert_eq!(pause.after_failure(Some(Duration::from_secs(1 << 40))), LONGEST_ASKED);
    }

    #[test]
    fn appetite_shrinks_and_comes_back() {
        let mut appetite = Appetite::default();
        (0..20).for_each(|_| appetite.less());
        assert_eq!(appetite.size(), LEAST);
        (0..20).for_each(|_| appetite.more());
        assert_eq!(appetite.size(), MOST);
    }
}
