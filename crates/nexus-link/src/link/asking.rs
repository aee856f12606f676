//! What is asked of a computer, and what it answers.

use std::sync::atomic::Ordering;

use serde_json::value::RawValue;

use super::sending::{MOST_UNSENT, RESERVE};
use super::{Hall, Link, State};
use crate::computer::Capability;
use crate::protocol::{self, Said};
use crate::registry::Target;
use crate::round::{Outcome, Owed};

/// Answers that a computer may owe at once.
const MOST_OWED: usize = 64;

impl Link {
    /// Asks. What comes of it is told to the round, unless it could not even be sent.
    pub fn request(&self, target: Target, owed: Owed, frame: &[u8]) -> Result<(), Outcome> {
        let mut state = self.state.lock();
        if state.closing.is_some() || state.moves != target.moves {
            return Err(Outcome::Gone);
        }
        if owed.round.is_work && state.stops != target.stops {
            return Err(Outcome::Stopped);
        }
        // What stops everything finds room where there is none left.
        let most = if owed.round.is_stop { (usize::MAX, MOST_UNSENT + RESERVE) } else { (MOST_OWED, MOST_UNSENT) };
        if state.owed.len() >= most.0 || state.unsent.bytes() + frame.len() > most.1 {
            return Err(Outcome::Busy);
        }
        let id = owed.id;
        state.owed.push(owed);
        self.put(&mut state, Some(id), frame);
        Ok(())
    }

    pub(super) fn hear_answer(&self, id: u64, said: Said<'_>, hall: Hall<'_>) {
        let mut state = self.state.lock();
        if state.computer.is_none() {
            drop(state);
            return self.fault(protocol::HELLO_FIRST, hall);
        }
        let Some(at) = state.owed.iter().position(|owed| owed.id == id) else {
            drop(state);
            // Nothing is wrong with coming late.
            hall.registry.tally.late.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let Owed { round, slot, .. } = state.owed.swap_remove(at);
        state.faults = 0;
        drop(state);
        round.settle(
            slot,
            match said {
                Said::Result(result) if result.get().len() > round.largest => Outcome::TooLarge,
                Said::Result(_) if !round.keeps => Outcome::Answer(RawValue::NULL.to_owned()),
                Said::Result(result) => Outcome::Answer(result.to_owned()),
                Said::Error(words) => Outcome::Refused(words),
            },
        );
    }

    /// Nobody waits for that answer any more. Work that has not even gone out is not done: the round is told so.
    pub fn take_back(&self, id: u64, tells: bool) {
        let mut state = self.state.lock();
        let Some(at) = state.owed.iter().position(|owed| owed.id == id) else { return };
        let owed = state.owed.swap_remove(at);
        // A stop counts also when nobody waits to hear of it: it goes out when it can.
        if owed.round.is_stop {
            return;
        }
        if state.unsent.take_back(id) {
            drop(state);
            if owed.round.is_work {
                owed.round.settle(owed.slot, Outcome::Busy);
            }
        } else if tells {
            self.put(&mut state, None, &protocol::cancel(id));
        }
    }

    /// Ends all work that waits, and every chain of work of which this was a part.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.stops = state.stops.wrapping_add(1);
        let (work, rest): (Vec<Owed>, Vec<Owed>) = state.owed.drain(..).partition(|owed| owed.round.is_work);
        state.owed = rest;
        // Whoever understands `stop` ends it all by that, and can count.
        let tells = state.computer.as_ref().is_some_and(|computer| !computer.can(Capability::Stop));
        let (unsent, sent) = self.give_up(&mut state, work, tells);
        drop(state);
        unsent.into_iter().for_each(|owed| owed.round.settle(owed.slot, Outcome::Busy));
        sent.into_iter().for_each(|owed| owed.round.settle(owed.slot, Outcome::Stopped));
    }

    /// Takes requests out of what waits to be sent, and cancels those that have gone out. Which did not, and which did.
    pub(super) fn give_up(&self, state: &mut State, owed: Vec<Owed>, tells: bool) -> (Vec<Owed>, Vec<Owed>) {
        let (unsent, sent): (Vec<Owed>, Vec<Owed>) = owed.into_iter().partition(|owed| state.unsent.take_back(owed.id));
        for owed in sent.iter().filter(|owed| tells && owed.round.keeps) {
            self.put(state, None, &protocol::cancel(owed.id));
        }
        (unsent, sent)
    }
}
