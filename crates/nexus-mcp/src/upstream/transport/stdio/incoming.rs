//! What comes from a server's stdout, line by line, however long it claims to be.

use std::io::{BufRead, ErrorKind};
use std::sync::Arc;

use tokio::net::unix::pipe;

use super::super::Inbox;
use super::LONGEST_MESSAGE;
use crate::upstream::error::TransportError;
use crate::upstream::log::{ServerLog, Voice};
use crate::upstream::transport::oversized::{self, Whose};

/// Bytes; what a pipe holds.
const PIPE: usize = 64 << 10;
/// From here on a line gets a buffer that the system maps: only what is written to takes memory, it grows without a copy,
/// and it is given back at once when it goes. The C library does so for every piece from 32 MiB on.
pub(crate) const LARGE: usize = 512 << 10;
pub(crate) const MAPPED: usize = 33 << 20;
/// Bytes at the end of an oversized line that are kept: some servers write the id last.
const TAIL: usize = 256;
/// A line of noise is shown so far.
const NOISE: usize = 500;
/// So many lines of noise are shown; what comes after is counted.
const NOISE_LINES: u64 = 100;

/// Hands every message to the inbox until the stream ends.
pub(super) async fn read(stdout: pipe::Receiver, inbox: Arc<dyn Inbox>, log: Arc<ServerLog>) {
    let mut lines = Lines::new(inbox, log);
    loop {
        if stdout.readable().await.is_err() {
            break;
        }
        match stdout.try_read_buf(lines.room()) {
            Ok(0) => break,
            Ok(count) => lines.grown(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    lines.end();
}

/// Cuts what has come into lines.
pub(super) struct Lines {
    inbox: Arc<dyn Inbox>,
    log: Arc<ServerLog>,
    buffer: Vec<u8>,
    /// Of a line that is too long: its end is awaited and nothing of it is kept but whose it may be.
    skipping: Option<Skipped>,
    noise: u64,
}

struct Skipped {
    whose: Whose,
    tail: Vec<u8>,
    length: usize,
}

impl Lines {
    pub(super) fn new(inbox: Arc<dyn Inbox>, log: Arc<ServerLog>) -> Self {
        Self { inbox, log, buffer: Vec::with_capacity(PIPE), skipping: None, noise: 0 }
    }

    /// Where to put what comes next.
    pub(super) fn room(&mut self) -> &mut Vec<u8> {
        if self.buffer.capacity() - self.buffer.len() < PIPE / 4 {
            let more =
                if self.buffer.len() < LARGE { PIPE } else { MAPPED.saturating_sub(self.buffer.len()).max(PIPE) };
            self.buffer.reserve(more);
        }
        &mut self.buffer
    }

    /// The last `count` bytes of the buffer are new.
    pub(super) fn grown(&mut self, count: usize) {
        let mut looked = self.buffer.len() - count;
        let mut start = 0;
        while let Some(end) = line_end(&self.buffer, looked) {
            if self.skipping.is_some() {
                self.skip(start, end);
                self.skipped();
            } else if start == 0 && end >= PIPE {
                // A large one is handed over as it is; what came after it is copied.
                let mut rest = Vec::with_capacity(PIPE);
                rest.extend_from_slice(&self.buffer[end + 1..]);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.truncate(end);
                self.line(line);
                looked = 0;
                continue;
            } else {
                self.line(self.buffer[start..end].to_vec());
            }
            (start, looked) = (end + 1, end + 1);
        }
        if self.skipping.is_some() {
            self.skip(start, self.buffer.len());
            self.buffer.clear();
            return;
        }
        self.buffer.drain(..start);
        if self.buffer.len() > LONGEST_MESSAGE {
            self.begin_skipping();
        } else if self.buffer.is_empty() && self.buffer.capacity() > 4 * PIPE {
            self.buffer = Vec::with_capacity(PIPE);
        }
    }

    /// The stream has ended. A last line without an end counts.
    pub(super) fn end(&mut self) {
        if self.skipping.is_some() {
            self.skipped();
        } else {
            let line = std::mem::take(&mut self.buffer);
            self.line(line);
        }
        if self.noise > NOISE_LINES {
            let more = self.noise - NOISE_LINES;
            self.log.note(format_args!("{more} more lines on its stdout were no messages"));
        }
    }

    fn line(&mut self, mut line: Vec<u8>) {
        if line.ends_with(b"\r") {
            line.pop();
        }
        match line.trim_ascii_start().first() {
            Some(b'{' | b'[') if line.len() <= LONGEST_MESSAGE => self.inbox.arrived(line, None),
            Some(b'{' | b'[') => self.too_large(oversized::whose(&line, &line), line.len()),
            None => {}
            Some(_) => {
                self.noise += 1;
                if self.noise <= NOISE_LINES {
                    self.log.add(Voice::Noise, &String::from_utf8_lossy(&line[..line.len().min(NOISE)]));
                }
            }
        }
    }

    fn begin_skipping(&mut self) {
        let whose = oversized::by_its_beginning(&self.buffer);
        let length = self.buffer.len();
        let tail = self.buffer[length - TAIL..].to_vec();
        self.buffer = Vec::with_capacity(PIPE);
        self.skipping = Some(Skipped { whose, tail, length });
    }

    /// More of a line that is too long.
    fn skip(&mut self, start: usize, end: usize) {
        let Some(skipped) = &mut self.skipping else { return };
        let piece = &self.buffer[start..end];
        skipped.length += piece.len();
        let last = &piece[piece.len().saturating_sub(TAIL)..];
        skipped.tail.extend_from_slice(last);
        let surplus = skipped.tail.len().saturating_sub(TAIL);
        skipped.tail.drain(..surplus);
    }

    /// Its end has come.
    fn skipped(&mut self) {
        let Some(Skipped { whose, tail, length }) = self.skipping.take() else { return };
        let whose = whose.or_else(|| oversized::by_its_end(&tail));
        self.too_large(whose, length);
    }

    fn too_large(&self, whose: Whose, length: usize) {
        self.log.note(format_args!("a message of {length} bytes was not taken"));
        let error = TransportError::TooLarge { limit: LONGEST_MESSAGE };
        match whose {
            Whose::Request(id) => self.inbox.failed(id, error),
            Whose::Nobodys => {}
            Whose::Unknown => self.inbox.lost(error),
        }
    }
}

/// Where the line ends, looking from there on. `skip_until` is the search of the C library, several times as fast as a loop.
fn line_end(buffer: &[u8], from: usize) -> Option<usize> {
    let passed = buffer.get(from..)?.skip_until(b'\n').ok()?;
    let last = (from + passed).checked_sub(1)?;
    (passed > 0 && buffer[last] == b'\n').then_some(last)
}
