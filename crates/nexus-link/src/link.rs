//! One connection of a computer. Whoever asks writes straight to the socket; the link's own task reads, and sends what
//! the socket did not take at once. So a slow computer holds up nobody, and an idle one costs little.

mod asking;
mod sending;
mod unsent;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use nexus_core::clock;
use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::consume_budget;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::computer::Computer;
use crate::frame::{self, Assembly, Broken, Message, code};
use crate::listener::Token;
use crate::protocol::{self, Fault, Hello};
use crate::registry::{Registry, Seen, Target};
use crate::round::{Outcome, Owed};
use unsent::Unsent;

/// Bad frames in a row after which a computer is sent away.
const MOST_FAULTS: u32 = 256;
/// A stranger has this long to say who it is.
pub const HELLO_PATIENCE: Duration = Duration::from_secs(10);
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
    /// Bytes of a message have come, and not all of it.
    within: AtomicBool,
    /// Something changed that the link's own task has to see to.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    computer: Option<Arc<Computer>>,
    since: Option<Timestamp>,
    owed: Vec<Owed>,
    unsent: Unsent,
    /// Bumped when all computers are stopped.
    stops: u32,
    /// Bumped when it says hello as another computer.
    moves: u32,
    missed: u8,
    /// Times that it was looked after while it read nothing, and while it was within the same message.
    stalled: u8,
    dragging: u8,
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
            within: AtomicBool::new(false),
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
        // Who is told to go hangs up: that was not the reason.
        match (self.state.lock().closing, stage) {
            (None | Some(""), Stage::Ended(why)) | (Some(why), _) => why,
            (None, Stage::Greeted) => "",
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
        } else {
            rest.extend_from_slice(bytes);
            match self.take_whole(rest, assembly, hall)? {
                0 => {}
                used if used == rest.len() => *rest = Vec::new(),
                used => *rest = rest.split_off(used),
            }
        }
        self.within.store(!rest.is_empty() || assembly.is_open(), Ordering::Relaxed);
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
        let mut state = self.state.lock();
        state.missed = 0;
        if matches!(message, Message::Text(_) | Message::Binary) {
            state.dragging = 0;
        }
        drop(state);
        match message {
            Message::Part | Message::Pong => {}
            Message::Ping(payload) => self.say_if_heard(&frame::pong(payload)),
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
        let mut state = self.state.lock();
        state.faults = 0;
        let is_known = state.computer.as_deref() == Some(&hello.computer);
        drop(state);
        if is_known {
            return self.say(&protocol::hello_ok());
        }
        if let Err(full) = hall.registry.register(self, hello.computer) {
            self.say(&protocol::error(full));
            self.close(code::TRY_LATER, "too many computers");
        }
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
        drop(state);
        self.say_if_heard(&protocol::error(fault));
    }

    /// Who it is; tells whether that is a new link, or one that says hello again.
    pub fn introduce(&self, computer: &Arc<Computer>) -> Option<Arc<Computer>> {
        let mut state = self.state.lock();
        // Now, while nobody can find it: a simple client takes the first thing it hears for this.
        self.put(&mut state, None, &protocol::hello_ok());
        let before = state.computer.replace(computer.clone());
        if before.as_ref().is_some_and(|before| before.address == computer.address) {
            return before;
        }
        state.since = Some(clock::now());
        // What was asked of the one it was before is not for the one it is now.
        state.moves = state.moves.wrapping_add(1);
        let owed = std::mem::take(&mut state.owed);
        let (unsent, sent) = self.give_up(&mut state, owed, true);
        drop(state);
        unsent.into_iter().chain(sent).for_each(|owed| owed.round.settle(owed.slot, Outcome::Gone));
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
            target: Target { link: self.serial, stops: state.stops, moves: state.moves },
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
