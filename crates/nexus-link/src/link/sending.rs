//! What goes out to a computer, at once or when its socket takes it, up to the last words.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};
use tokio::io::Interest;
use tokio::task::consume_budget;
use tokio::time::timeout;

use super::{Link, READ, State};
use crate::frame::{self, LARGEST_OUT, code};
use crate::round::Outcome;

/// Bytes that wait for a slow computer.
pub(super) const MOST_UNSENT: usize = 2 * LARGEST_OUT;
/// Bytes beyond that, for what ends something: a cancel, a stop, a close.
pub(super) const RESERVE: usize = 16 * 1024;
/// Times that a link is looked after in vain before it is closed.
const MOST_STALLED: u8 = 2;
/// Pings without an answer after which a link is dead.
pub(super) const MOST_MISSED: u8 = 2;
/// How long a closed link waits for the other side to have read why.
const LAST_WORDS: Duration = Duration::from_secs(2);

impl Link {
    /// Says something that a computer which does not listen can do without.
    pub(super) fn say(&self, frame: &[u8]) {
        let mut state = self.state.lock();
        if state.unsent.bytes() + frame.len() <= MOST_UNSENT {
            self.put(&mut state, None, frame);
        }
    }

    /// Says something for which a computer that is behind has no use: only the newest would count, or none of it.
    pub(super) fn say_if_heard(&self, frame: &[u8]) {
        let mut state = self.state.lock();
        if state.unsent.is_empty() {
            self.put(&mut state, None, frame);
        }
    }

    /// Sends, or keeps for later what the socket does not take; within reason.
    pub(super) fn put(&self, state: &mut State, request: Option<u64>, frame: &[u8]) {
        if state.closing.is_some() || state.unsent.bytes() + frame.len() > MOST_UNSENT + RESERVE {
            return;
        }
        let sent = match state.unsent.is_empty() {
            true => self.socket.try_write(frame).unwrap_or_default(), // the reader sees it if the socket is broken
            false => 0,
        };
        if sent < frame.len() {
            state.unsent.push(request, frame, sent);
            self.changed.notify_one();
        }
    }

    pub(super) fn send_unsent(&self) {
        let mut state = self.state.lock();
        while let Some(next) = state.unsent.next() {
            match self.socket.try_write(next) {
                Ok(0) | Err(_) => return,
                Ok(sent) => {
                    state.unsent.sent(sent);
                    state.stalled = 0;
                }
            }
        }
    }

    /// A ping, or the end of a link that does not answer, does not read, or does not finish what it began to say.
    pub fn look_after(&self) {
        let mut state = self.state.lock();
        state.stalled = if state.unsent.is_empty() { 0 } else { state.stalled + 1 };
        state.dragging = if self.within.load(Ordering::Relaxed) { state.dragging + 1 } else { 0 };
        let (code, why) = match &*state {
            State { missed: MOST_MISSED.., .. } => (code::GOING_AWAY, "it did not answer two pings"),
            State { stalled, .. } if *stalled > MOST_STALLED => (code::POLICY, "it does not read what it is sent"),
            State { dragging, .. } if *dragging > MOST_STALLED => (code::POLICY, "a message was never finished"),
            // It cannot miss what it has not got.
            _ if !state.unsent.is_empty() => return,
            _ => {
                state.missed += 1;
                return self.put(&mut state, None, &frame::ping());
            }
        };
        drop(state);
        self.close(code, why);
    }

    /// Ends the link, with a last word to the computer.
    pub fn close(&self, code: u16, why: &'static str) {
        let mut state = self.state.lock();
        if state.closing.is_some() {
            return;
        }
        let outcome = if code == code::REPLACED { Outcome::Replaced } else { Outcome::Gone };
        let owed = std::mem::take(&mut state.owed);
        for owed in &owed {
            state.unsent.take_back(owed.id);
        }
        self.put(&mut state, None, &frame::close(code, why));
        state.closing = Some(why);
        drop(state);
        owed.into_iter().for_each(|owed| owed.round.settle(owed.slot, outcome.clone()));
        self.changed.notify_one();
    }

    /// Sends what is left to be said and waits until the other side has closed: a socket that is closed over unread
    /// bytes takes its last words back.
    pub async fn farewell(&self) {
        let mut is_said = false;
        let farewell = async {
            loop {
                self.send_unsent();
                let sends = !self.state.lock().unsent.is_empty();
                if !sends && !is_said {
                    is_said = true;
                    let _ = shutdown(&self.socket, Shutdown::Write);
                }
                let interest = if sends { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
                consume_budget().await;
                if self.socket.ready(interest).await.is_err() || self.drain().is_err() {
                    return;
                }
            }
        };
        let _ = timeout(LAST_WORDS, farewell).await;
    }

    /// Reads and forgets. An error: nothing more will come.
    fn drain(&self) -> Result<(), ()> {
        match self.socket.try_read(&mut [0; READ]) {
            Ok(0) => Err(()),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(_) => Err(()),
        }
    }
}
