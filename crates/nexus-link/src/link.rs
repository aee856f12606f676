//! One connection of a computer. Whoever asks writes straight to the socket; the link's own task reads, and sends what
//! the socket did not take at once. So a slow computer holds up nobody, and an idle one costs little.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use nexus_core::clock;
use parking_lot::Mutex;
use rustix::net::{Shutdown, shutdown};
use serde_json::value::RawValue;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::consume_budget;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::computer::Computer;
use crate::frame::{self, Assembly, Broken, LARGEST_OUT, Message, code};
use crate::listener::Token;
use crate::protocol::{self, Fault, Hello, Said};
use crate::registry::{Registry, Seen, Target};
use crate::round::{Outcome, Owed};

/// Answers that a computer may owe at once.
const MOST_OWED: usize = 64;
/// Bytes that wait for a slow computer.
const MOST_UNSENT: usize = 2 * LARGEST_OUT;
/// Bad frames in a row after which a computer is sent away.
const MOST_FAULTS: u32 = 256;
/// A stranger has this long to say who it is.
pub const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// How long a closed link waits for the other side to have read why.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Pings without an answer after which a link is dead.
const MOST_MISSED: u8 = 2;
/// What computers are told when the hub ends.
pub const ENDING: &str = "the hub ends";
/// Bytes read at a time. On the stack, and never kept while a link waits.
const READ: usize = 4096;

#[derive(Debug)]
pub struct Link {
    /// Never given again.
    pub serial: u64,
    pub from: IpAddr,
    socket: TcpStream,
    state: Mutex<State>,
    /// By the monotonic clock, in milliseconds.
    heard: AtomicI64,
    /// Something changed that the link's own task has to see to.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    computer: Option<Arc<Computer>>,
    since: Option<Timestamp>,
    owed: Vec<Owed>,
    unsent: Vec<u8>,
    /// Bumped when all computers are stopped.
    stops: u32,
    missed: u8,
    faults: u32,
    /// Why it ends. Nothing is sent after its close frame.
    closing: Option<&'static str>,
}

/// What a link needs of the hub.
#[derive(Clone, Copy, Debug)]
pub struct Hall<'a> {
    pub registry: &'a Registry,
    /// What a hello must bring. None: it came with the upgrade, or none is needed.
    pub token: Option<&'a Token>,
    /// Nobody is let in any more.
    pub ending: &'a CancellationToken,
}

/// How a stage of a link's life ended.
#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Greeted,
    Ended(&'static str),
}

impl Link {
    pub fn new(serial: u64, from: IpAddr, socket: TcpStream) -> Self {
        Self {
            serial,
            from,
            socket,
            state: Mutex::default(),
            heard: AtomicI64::new(clock::monotonic_ms()),
            changed: Notify::new(),
        }
    }

    /// Lives until the link ends, and says why it did. `rest` came right behind the upgrade; `greeted` is called when
    /// it has said hello.
    pub async fn live(self: &Arc<Self>, hall: Hall<'_>, rest: Vec<u8>, greeted: impl FnOnce()) -> &'static str {
        let mut inbox = Inbox { rest, assembly: Assembly::default() };
        let stage = match self.take_frames(&mut inbox, &mut [], hall) {
            Ok(()) => self.wait_for_hello(&mut inbox, hall).await,
            Err(ended) => ended,
        };
        let stage = match stage {
            Stage::Greeted => {
                greeted();
                if hall.ending.is_cancelled() {
                    self.close(code::GOING_AWAY, ENDING);
                }
                self.read(&mut inbox, hall, Stage::Ended("")).await
            }
            ended => ended,
        };
        // Whatever ended it, nobody waits for answers of it any more.
        self.close(code::NORMAL, "");
        match stage {
            Stage::Ended(why) => why,
            Stage::Greeted => "",
        }
    }

    async fn wait_for_hello(self: &Arc<Self>, inbox: &mut Inbox, hall: Hall<'_>) -> Stage {
        let hello = timeout(HELLO_PATIENCE, self.read(inbox, hall, Stage::Greeted));
        match hall.ending.run_until_cancelled(hello).await {
            Some(Ok(stage)) => stage,
            Some(Err(_)) => {
                self.close(code::POLICY, "no hello came");
                Stage::Ended("no hello came")
            }
            None => {
                self.close(code::GOING_AWAY, ENDING);
                Stage::Ended(ENDING)
            }
        }
    }

    /// Reads until the stage comes, or the link ends.
    async fn read(self: &Arc<Self>, inbox: &mut Inbox, hall: Hall<'_>, until: Stage) -> Stage {
        loop {
            let (wants_to_write, is_greeted) = {
                let state = self.state.lock();
                if let Some(why) = state.closing {
                    return Stage::Ended(why);
                }
                (!state.unsent.is_empty(), state.computer.is_some())
            };
            if is_greeted && until == Stage::Greeted {
                return Stage::Greeted;
            }
            let interest = if wants_to_write { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
            // Neither of them gives others their turn while a computer sends faster than it is read.
            consume_budget().await;
            let ready = tokio::select! {
                ready = self.socket.ready(interest) => ready,
                () = self.changed.notified() => continue,
            };
            match ready {
                Ok(ready) if ready.is_writable() => self.send_unsent(),
                Ok(_) => {}
                Err(_) => return Stage::Ended("the connection broke"),
            }
            if let Err(stage) = self.read_once(inbox, hall) {
                return stage;
            }
        }
    }

    /// Takes what has come, as far as one buffer holds it. Not async: the buffer must not become part of the task.
    fn read_once(self: &Arc<Self>, inbox: &mut Inbox, hall: Hall<'_>) -> Result<(), Stage> {
        let mut buffer = [0; READ];
        let count = match self.socket.try_read(&mut buffer) {
            Ok(0) => return Err(Stage::Ended("the computer hung up")),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(_) => return Err(Stage::Ended("the connection broke")),
        };
        self.heard.store(clock::monotonic_ms(), Ordering::Relaxed);
        self.take_frames(inbox, buffer.get_mut(..count).unwrap_or_default(), hall)
    }

    /// Takes all whole frames; what is left over waits in the inbox.
    fn take_frames(self: &Arc<Self>, inbox: &mut Inbox, bytes: &mut [u8], hall: Hall<'_>) -> Result<(), Stage> {
        let Inbox { rest, assembly } = inbox;
        if rest.is_empty() {
            let used = self.take_whole(bytes, assembly, hall)?;
            rest.extend_from_slice(bytes.get(used..).unwrap_or_default());
            return Ok(());
        }
        rest.extend_from_slice(bytes);
        match self.take_whole(rest, assembly, hall)? {
            0 => {}
            used if used == rest.len() => *rest = Vec::new(),
            used => *rest = rest.split_off(used),
        }
        Ok(())
    }

    fn take_whole(self: &Arc<Self>, bytes: &mut [u8], assembly: &mut Assembly, hall: Hall<'_>) -> Result<usize, Stage> {
        let mut used = 0;
        loop {
            let next = bytes.get_mut(used..).unwrap_or_default();
            let frame = match frame::take(next) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(used),
                Err(broken) => return Err(self.broken(broken, hall)),
            };
            used += frame.length;
            let went_on = assembly.add(&frame, |message| self.hear(message, hall));
            went_on.map_err(|broken| self.broken(broken, hall))??;
            if let Some(why) = self.state.lock().closing {
                return Err(Stage::Ended(why));
            }
        }
    }

    fn broken(&self, broken: Broken, hall: Hall<'_>) -> Stage {
        hall.registry.tally.faults.fetch_add(1, Ordering::Relaxed);
        self.close(broken.code, broken.why);
        Stage::Ended(broken.why)
    }

    fn hear(self: &Arc<Self>, message: Message<'_>, hall: Hall<'_>) -> Result<(), Stage> {
        self.state.lock().missed = 0;
        match message {
            Message::Part | Message::Pong => {}
            Message::Ping(payload) => self.say(&frame::pong(payload)),
            Message::Close => {
                self.close(code::NORMAL, "");
                return Err(Stage::Ended("the computer hung up"));
            }
            Message::Binary => self.fault(protocol::BINARY, hall),
            Message::Text(payload) => match protocol::parse(payload) {
                Ok(protocol::Message::Hello(hello)) => self.greet(hello, hall),
                Ok(protocol::Message::Response { id, said }) => self.hear_answer(id, said, hall),
                Err(fault) if self.is_greeted() => self.fault(fault, hall),
                Err(fault) => self.fault(if fault == protocol::LATE { protocol::HELLO_FIRST } else { fault }, hall),
            },
        }
        Ok(())
    }

    fn greet(self: &Arc<Self>, hello: Hello<'_>, hall: Hall<'_>) {
        if hall.token.is_some_and(|token| !token.is(hello.token.as_bytes())) {
            hall.registry.refused(self.from, "a wrong token, or none");
            self.say(&protocol::error(Fault("the token is wrong or missing; it is the hub's CC_LINK_TOKEN")));
            return self.close(code::TOKEN, "token refused");
        }
        self.state.lock().faults = 0;
        match hall.registry.register(self, hello.computer) {
            Ok(()) => self.say(&protocol::hello_ok()),
            Err(full) => {
                self.say(&protocol::error(full));
                self.close(code::TRY_LATER, "too many computers");
            }
        }
    }

    fn hear_answer(&self, id: u64, said: Said<'_>, hall: Hall<'_>) {
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

    /// Counts what could not be understood, and tells the computer, as long as it listens.
    fn fault(&self, fault: Fault, hall: Hall<'_>) {
        hall.registry.tally.faults.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.faults += 1;
        if state.faults >= MOST_FAULTS {
            drop(state);
            return self.close(code::POLICY, "too many frames that could not be understood");
        }
        if state.unsent.is_empty() {
            self.put(&mut state, &protocol::error(fault));
        }
    }

    fn say(&self, frame: &[u8]) {
        self.put(&mut self.state.lock(), frame);
    }

    /// Sends, or keeps for later what the socket does not take. False: nothing more can be kept.
    fn put(&self, state: &mut State, frame: &[u8]) -> bool {
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

    fn send_unsent(&self) {
        let mut state = self.state.lock();
        while !state.unsent.is_empty() {
            match self.socket.try_write(&state.unsent) {
                Ok(0) | Err(_) => return,
                Ok(sent) if sent == state.unsent.len() => state.unsent = Vec::new(),
                Ok(sent) => drop(state.unsent.drain(..sent)),
            }
        }
    }

    /// Asks. What comes of it is told to the round, unless it could not even be sent.
    pub fn request(&self, target: Target, owed: Owed, frame: &[u8]) -> Result<(), Outcome> {
        let mut state = self.state.lock();
        if state.closing.is_some() {
            return Err(Outcome::Gone);
        }
        if owed.round.is_work && state.stops != target.stops {
            return Err(Outcome::Stopped);
        }
        if state.owed.len() >= MOST_OWED || state.unsent.len() + frame.len() > MOST_UNSENT {
            return Err(Outcome::Busy);
        }
        state.owed.push(owed);
        self.put(&mut state, frame);
        Ok(())
    }

    /// Nobody waits for that answer any more.
    pub fn take_back(&self, id: u64, tells: bool) {
        let mut state = self.state.lock();
        let Some(at) = state.owed.iter().position(|owed| owed.id == id) else { return };
        state.owed.swap_remove(at);
        if tells {
            self.put(&mut state, &protocol::cancel(id));
        }
    }

    /// Ends all work that waits, and every chain of work of which this was a part.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.stops = state.stops.wrapping_add(1);
        let (work, rest): (Vec<Owed>, Vec<Owed>) = state.owed.drain(..).partition(|owed| owed.round.is_work);
        state.owed = rest;
        drop(state);
        work.into_iter().for_each(|owed| owed.round.settle(owed.slot, Outcome::Stopped));
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

    /// Who it is; tells whether that is a new link, or one that says hello again.
    pub fn introduce(&self, computer: &Arc<Computer>) -> Option<Arc<Computer>> {
        let mut state = self.state.lock();
        let before = state.computer.replace(computer.clone());
        if before.as_ref().is_none_or(|before| before.address != computer.address) {
            state.since = Some(clock::now());
        }
        before
    }

    pub fn is_greeted(&self) -> bool {
        self.state.lock().computer.is_some()
    }

    pub fn computer(&self) -> Option<Arc<Computer>> {
        self.state.lock().computer.clone()
    }

    /// As it is now. None: it has not said hello.
    pub fn seen(&self) -> Option<Seen> {
        let state = self.state.lock();
        Some(Seen {
            computer: state.computer.clone()?,
            target: Target { link: self.serial, stops: state.stops },
            since: state.since?,
            heard_s: self.heard_s(),
            from: self.from,
        })
    }

    fn heard_s(&self) -> u64 {
        let past = clock::monotonic_ms() - self.heard.load(Ordering::Relaxed);
        u64::try_from(past / 1000).unwrap_or_default()
    }
}

/// What has come and is not a whole message yet.
struct Inbox {
    rest: Vec<u8>,
    assembly: Assembly,
}

#[cfg(test)]
mod tests;
