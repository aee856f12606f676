//! What goes to a server's stdin. The sender writes it itself while the pipe takes it; only what is left waits in a queue.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::upstream::error::TransportError;
use crate::wire::on_one_line;

/// Bytes that may wait for a server that does not read; then the senders wait.
const MOST_WAITING: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Outbox {
    state: Mutex<State>,
    /// There is something for [`Outbox::flush`] to do.
    waiting: Notify,
    /// There is room again.
    drained: Notify,
    closed: CancellationToken,
}

#[derive(Debug)]
struct State {
    /// Gone once it is closed: the server sees the end of its input.
    pipe: Option<Arc<pipe::Sender>>,
    queue: VecDeque<String>,
    /// Bytes of the first in the queue that are written.
    written: usize,
    bytes: usize,
}

impl Outbox {
    pub(super) fn new(pipe: pipe::Sender) -> Self {
        let state = State { pipe: Some(Arc::new(pipe)), queue: VecDeque::new(), written: 0, bytes: 0 };
        Self {
            state: Mutex::new(state),
            waiting: Notify::new(),
            drained: Notify::new(),
            closed: CancellationToken::new(),
        }
    }

    /// Comes back when it is written or next in line.
    pub(super) async fn send(&self, line: String) -> Result<(), TransportError> {
        // Whoever called may have written line ends between tokens: the server must not take the rest for a message.
        let mut line = on_one_line(line);
        line.push('\n');
        let room = self.drained.notified();
        tokio::pin!(room);
        loop {
            // Listens before it looks.
            room.as_mut().enable();
            match self.take(line) {
                Ok(()) => return Ok(()),
                Err(Untaken::Closed) => return Err(closed()),
                Err(Untaken::Full(given_back)) => line = given_back,
            }
            tokio::select! {
                () = room.as_mut() => room.set(self.drained.notified()),
                () = self.closed.cancelled() => return Err(closed()),
            }
        }
    }

    /// Writes what had to wait, until it is closed.
    pub(super) async fn flush(&self) {
        loop {
            let pipe = self.state.lock().unwritten();
            let progress = async {
                match pipe {
                    Some(pipe) => drop(pipe.writable().await),
                    None => self.waiting.notified().await,
                }
            };
            tokio::select! {
                () = progress => {}
                () = self.closed.cancelled() => return,
            }
            let mut state = self.state.lock();
            if state.write().is_err() {
                return self.shut(&mut state);
            }
            if state.bytes <= MOST_WAITING {
                self.drained.notify_waiters();
            }
        }
    }

    /// The server sees the end of its input; what still waits is dropped.
    pub(super) fn close(&self) {
        self.shut(&mut self.state.lock());
    }

    /// Comes back when nothing can be sent any more.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    fn shut(&self, state: &mut State) {
        state.pipe = None;
        state.queue.clear();
        self.closed.cancel();
    }

    fn take(&self, line: String) -> Result<(), Untaken> {
        let mut state = self.state.lock();
        if state.pipe.is_none() {
            return Err(Untaken::Closed);
        }
        if state.bytes > MOST_WAITING {
            return Err(Untaken::Full(line));
        }
        let first = state.queue.is_empty();
        state.bytes += line.len();
        state.queue.push_back(line);
        if first {
            if state.write().is_err() {
                let nothing_left = state.written == 0;
                self.shut(&mut state);
                // Of a message that is half written nobody can say what became of it: whoever waits for the answer
                // hears of the end.
                return if nothing_left { Err(Untaken::Closed) } else { Ok(()) };
            }
            if !state.queue.is_empty() {
                self.waiting.notify_one();
            }
        }
        Ok(())
    }
}

enum Untaken {
    Closed,
    Full(String),
}

impl State {
    /// The pipe, if there is something to write to it.
    fn unwritten(&self) -> Option<Arc<pipe::Sender>> {
        if self.queue.is_empty() { None } else { self.pipe.clone() }
    }

    /// As much as the pipe takes without waiting.
    fn write(&mut self) -> io::Result<()> {
        let Some(pipe) = &self.pipe else { return Ok(()) };
        while let Some(line) = self.queue.front() {
            match pipe.try_write(&line.as_bytes()[self.written..]) {
                Ok(count) => {
                    self.written += count;
                    self.bytes -= count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            if self.written == line.len() {
                self.queue.pop_front();
                self.written = 0;
            }
        }
        Ok(())
    }
}

fn closed() -> TransportError {
    TransportError::Closed("the server no longer reads".to_owned())
}
