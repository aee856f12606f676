//! How fast Telegram takes messages: about one a second in a chat, and twenty a minute in a group. Some at once are
//! fine. What is sent faster would be answered with 429, which silences the whole bot.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// Messages to one chat that may follow each other at once.
const BURST: u32 = 5;
const BETWEEN: Duration = Duration::from_secs(1);
/// In a group, within a minute.
const MOST_OF_A_GROUP: usize = 20;
const MINUTE: Duration = Duration::from_secs(60);

/// When messages went to each chat.
#[derive(Debug, Default)]
pub struct Pace {
    chats: HashMap<i64, Chat>,
}

#[derive(Debug, Default)]
struct Chat {
    /// Until when what was sent so far would take, at one message a second.
    busy_until: Option<Instant>,
    /// The last ones to a group.
    sent: VecDeque<Instant>,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// The one at this place.
    Now(usize),
    /// None before this time.
    At(Instant),
    Nothing,
}

impl Pace {
    /// Whose turn it is, of messages to these chats: the first that need not wait. Those of one chat keep their order.
    pub fn turn(&self, chats: impl IntoIterator<Item = i64>, now: Instant) -> Turn {
        let mut seen = Vec::new();
        let mut earliest: Option<Instant> = None;
        for (place, chat) in chats.into_iter().enumerate() {
            if seen.contains(&chat) {
                continue;
            }
            seen.push(chat);
            match self.free_at(chat) {
                Some(free) if free > now => earliest = Some(earliest.map_or(free, |earliest| earliest.min(free))),
                _ => return Turn::Now(place),
            }
        }
        earliest.map_or(Turn::Nothing, Turn::At)
    }

    pub fn sent(&mut self, chat: i64, now: Instant) {
        let state = self.chats.entry(chat).or_default();
        state.busy_until = Some(state.busy_until.map_or(now, |busy| busy.max(now)) + BETWEEN);
        if chat < 0 {
            state.sent.push_back(now);
            if state.sent.len() > MOST_OF_A_GROUP {
                state.sent.pop_front();
            }
        }
    }

    /// None: at any time.
    fn free_at(&self, chat: i64) -> Option<Instant> {
        let state = self.chats.get(&chat)?;
        let burst = state.busy_until.and_then(|busy| busy.checked_sub(BETWEEN * (BURST - 1)));
        let full = (state.sent.len() >= MOST_OF_A_GROUP).then(|| state.sent.front().map(|first| *first + MINUTE));
        burst.max(full.flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many seconds `count` messages to a chat take.
    fn takes(chat: i64, count: usize) -> u64 {
        let (mut pace, start) = (Pace::default(), Instant::now() + MINUTE);
        let mut now = start;
        for _ in 0..count {
            if let Turn::At(later) = pace.turn([chat], now) {
                now = later;
            }
            assert_eq!(pace.turn([chat], now), Turn::Now(0));
            pace.sent(chat, now);
        }
        (now - start).as_secs()
    }

    #[test]
    fn some_go_at_once_and_then_one_a_second() {
        assert_eq!(takes(7, 5), 0);
        assert_eq!(takes(7, 6), 1);
        assert_eq!(takes(7, 65), 60);
    }

    #[test]
    fn a_group_gets_twenty_a_minute() {
        assert_eq!(takes(-7, 5), 0);
        assert!(takes(-7, 20) < 60);
        assert_eq!(takes(-7, 21), 60);
        assert!(takes(-7, 61) >= 180);
    }

    #[test]
    fn a_chat_that_must_wait_does_not_hold_up_another() {
        let (mut pace, now) = (Pace::default(), Instant::now() + MINUTE);
        (0..BURST).for_each(|_| pace.sent(1, now));
        assert_eq!(pace.turn([1, 1, 2], now), Turn::Now(2));
        assert_eq!(pace.turn([1, 1], now), Turn::At(now + BETWEEN));
        assert_eq!(pace.turn([], now), Turn::Nothing);
    }
}
