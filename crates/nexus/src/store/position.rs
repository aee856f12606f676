//! Where a row stands in the order of writing, over all processes: time first, then who, then a count.

use uuid::Uuid;

/// Milliseconds from 1970 to 2026, where positions begin.
const BEGINNING_MS: i64 = 1_767_225_600_000;
pub(super) const TAG_BITS: u32 = 10;
pub(super) const COUNT_BITS: u32 = 12;

/// The first position of a moment: what was written since then lies at or behind it.
pub fn position(at_ms: i64) -> i64 {
    at_ms.saturating_sub(BEGINNING_MS).clamp(0, i64::MAX >> (TAG_BITS + COUNT_BITS)) << (TAG_BITS + COUNT_BITS)
}

/// The positions in one entry of `audit_place` lie within this: rows are listed a second after they are written, or at
/// the latest when the store takes them again.
pub const BATCH_SPAN: i64 = 120_000 << (TAG_BITS + COUNT_BITS);

/// When it was written.
pub fn written_ms(pos: i64) -> i64 {
    (pos >> (TAG_BITS + COUNT_BITS)) + BEGINNING_MS
}

/// Gives positions: later ones are greater, and no two processes give the same.
#[derive(Debug)]
pub struct Stamp {
    pub(super) tag: i64,
    pub(super) ms: i64,
    pub(super) count: i64,
}

impl Stamp {
    pub fn new() -> Self {
        let mut stamp = Self { tag: 0, ms: 0, count: 0 };
        stamp.choose_tag();
        stamp
    }

    /// A second process with the same tag in the same millisecond is told so by the store, and chooses again. A
    /// smaller tag must not give a smaller position, even where the clock stands still.
    pub fn choose_tag(&mut self) {
        (self.ms, self.count) = (self.ms + 1, 0);
        self.tag = i64::from(Uuid::new_v4().as_fields().0 & ((1 << TAG_BITS) - 1));
    }

    pub fn next(&mut self, now_ms: i64) -> i64 {
        let now = position(now_ms) >> (TAG_BITS + COUNT_BITS);
        (self.ms, self.count) = match self.count + 1 {
            _ if now > self.ms => (now, 0),
            count if count < 1 << COUNT_BITS => (self.ms, count),
            _ => (self.ms + 1, 0),
        };
        self.ms << (TAG_BITS + COUNT_BITS) | self.tag << COUNT_BITS | self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn positions_grow_whatever_the_clock_does(times in proptest::collection::vec(BEGINNING_MS - 10..BEGINNING_MS + 10, 1..200)) {
            let mut stamp = Stamp::new();
            let mut last = -1;
            for (nth, now) in times.into_iter().enumerate() {
                if nth % 3 == 0 {
                    stamp.choose_tag();
                }
                let pos = stamp.next(now);
                prop_assert!(pos > last);
                last = pos;
            }
        }
    }

    #[test]
    fn more_rows_than_a_millisecond_holds_borrow_from_the_next() {
        let mut stamp = Stamp::new();
        let now = BEGINNING_MS + 1_000;
        let given: Vec<i64> = (0..10_000).map(|_| stamp.next(now)).collect();
        assert!(given.is_sorted_by(|a, b| a < b));
        assert_eq!(written_ms(given[0]), now);
        assert_eq!(written_ms(given[9_999]), now + 2);
        assert!(position(now) <= given[0] && given[0] < position(now + 1));
    }
}
