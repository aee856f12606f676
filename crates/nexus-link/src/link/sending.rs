//! What goes out to a computer, at once or when its socket takes it, up to the last words.

use std::io;
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
/// Pings without an answer after which a link is dead.
pub(super) const MOST_MISSED: u8 = 2;
/// How long a closed link waits for the other side to have read why.
const LAST_WORDS: Duration = Duration::from_secs(2);

impl Link {
    pub(super) fn say(&self, frame: &[u8]) {
        self.put(&mut self.state.lock(), frame);
    }

    /// Sends, or keeps for later what the socket does not take. False: nothing more can be kept.
    pub(super) fn put(&self, state: &mut State, frame: &[u8]) -> bool {
        if state.closing.is_some() || state.unsent.len() + frame.len() > MOST_UNSENT {
            return false;
        }
        let sent = match state.unsent.is_empty() {
            true => self.socket.try_write(frame).unwrap_or_default(), // the reader sees it if the socket is broken
            false => 0,
        };
        if let Some(rest @ [_, ..]) = frame.get(sent..) {
            state.unsent.extend_from_slice(rest);
            self.changed.notify_one();
        }
        true
    }

    pub(super) fn send_unsent(&self) {
        let mut state = self.state.lock();
        while !state.unsent.is_empty() {
            match self.socket.try_write(&state.unsent) {
                Ok(0) | Err(_) => return,
                Ok(sent) if sent == state.unsent.len() => state.unsent = Vec::new(),
                Ok(sent) => drop(state.unsent.drain(..sent)),
            }
        }
    }

    /// A ping, or the end of a link whose pings went unanswered.
    pub fn look_after(&self) {
        let mut state = self.state.lock();
        if state.missed >= MOST_MISSED {
            drop(state);
            return self.close(code::GOING_AWAY, "it did not answer two pings");
        }
        state.missed += 1;
        self.put(&mut state, &frame::ping());
    }

    /// Ends the link, with a last word to the computer.
    pub fn close(&self, code: u16, why: &'static str) {
        let mut state = self.state.lock();
        if state.closing.is_some() {
            return;
        }
        self.put(&mut state, &frame::close(code, why));
        state.closing = Some(why);
        let outcome = if code == code::REPLACED { Outcome::Replaced } else { Outcome::Gone };
        let owed = std::mem::take(&mut state.owed);
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
