//! What a server has said beside the protocol, and what happened to it: kept in memory, bounded, fit to be shown.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

use nexus_core::{clock, redact, text};

/// How much is kept; the oldest goes first.
const MOST_LINES: usize = 1_000;
/// Bytes of one line; the rest of it is not read into memory.
const LONGEST_LINE: usize = 2_000;
/// Bytes of all lines: a hundred servers that never stop talking must not fill the hub.
const MOST_BYTES: usize = 256 * 1024;

/// A server that says more than that is only counted until the next second: every line costs a look for secrets.
const LINES_A_SECOND: usize = 500;

/// The log of one server. It outlives the connections to it.
#[derive(Default)]
pub struct ServerLog(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    lines: VecDeque<LogLine>,
    bytes: usize,
    /// Lines that were there once.
    dropped: u64,
}

/// One line: cleaned, redacted, cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogLine {
    pub at: Timestamp,
    pub from: Voice,
    pub text: String,
}

/// Who says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Voice {
    /// The server, on stderr.
    Server,
    /// The server, on stdout, where only messages belong.
    Noise,
    /// The hub, about the server.
    Hub,
}

impl ServerLog {
    pub fn new() -> Self {
        Self::default()
    }

    /// The hub's own words about it.
    pub fn note(&self, words: impl fmt::Display) {
        self.add(Voice::Hub, &words.to_string());
    }

    pub fn add(&self, from: Voice, words: &str) {
        let text = fit(words);
        if text.is_empty() {
            return;
        }
        let line = LogLine { at: clock::now(), from, text };
        let mut kept = self.0.lock();
        kept.bytes += line.text.len();
        kept.lines.push_back(line);
        while kept.lines.len() > MOST_LINES || kept.bytes > MOST_BYTES {
            let Some(oldest) = kept.lines.pop_front() else { break };
            kept.bytes -= oldest.text.len();
            kept.dropped += 1;
        }
    }

    /// The last `most` lines, oldest first.
    pub fn last(&self, most: usize) -> Vec<LogLine> {
        let kept = self.0.lock();
        kept.lines.iter().skip(kept.lines.len().saturating_sub(most)).cloned().collect()
    }

    /// How many older lines are no longer there.
    pub fn dropped(&self) -> u64 {
        self.0.lock().dropped
    }

    /// The last line the server itself said since then, for an error that has to explain its end.
    pub fn last_words(&self, since: Timestamp) -> Option<String> {
        let kept = self.0.lock();
        let said = kept.lines.iter().rev().take_while(|line| line.at >= since);
        said.into_iter().find(|line| line.from == Voice::Server).map(|line| text::cut(&line.text, 200).into_owned())
    }

    /// Reads lines until the stream ends.
    pub(super) async fn follow(&self, mut stream: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; 8 * 1024];
        let mut lines = Lines { log: self, line: Vec::new(), since: Instant::now(), said: 0, passed_over: 0 };
        while let Ok(length @ 1..) = stream.read(&mut buffer).await {
            lines.take(&buffer[..length]);
        }
        lines.end_line();
        lines.settle();
    }
}

impl fmt::Debug for ServerLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerLog").field("lines", &self.0.lock().lines.len()).finish()
    }
}

/// Cuts a stream into lines, of which only the beginning is kept.
struct Lines<'a> {
    log: &'a ServerLog,
    line: Vec<u8>,
    since: Instant,
    said: usize,
    passed_over: usize,
}

impl Lines<'_> {
    fn take(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = (LONGEST_LINE + 1).saturating_sub(self.line.len());
            let words = piece.strip_suffix(b"\n").unwrap_or(piece);
            self.line.extend_from_slice(&words[..words.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        if self.since.elapsed() >= Duration::from_secs(1) {
            self.settle();
        }
        if self.said < LINES_A_SECOND {
            self.said += 1;
            self.log.add(Voice::Server, &String::from_utf8_lossy(&self.line));
        } else {
            self.passed_over += 1;
        }
        self.line.clear();
    }

    /// A new second begins.
    fn settle(&mut self) {
        if self.passed_over > 0 {
            self.log.note(format_args!("{} more lines within a second were left out", self.passed_over));
        }
        (self.since, self.said, self.passed_over) = (Instant::now(), 0, 0);
    }
}

/// One line of it, with nothing in it that deceives or is secret.
fn fit(words: &str) -> String {
    let one_line = text::clean(words).replace(['\n', '\r', '\t'], " ");
    let mut end = one_line.len().min(LONGEST_LINE);
    while !one_line.is_char_boundary(end) {
        end -= 1;
    }
    match end == one_line.len() {
        true => redact::text(one_line.trim()).into_owned(),
        false => format!("{}…", redact::beginning(one_line[..end].trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(log: &ServerLog) -> Vec<String> {
        log.last(usize::MAX).into_iter().map(|line| line.text).collect()
    }

    #[tokio::test]
    async fn lines_are_kept_without_escapes_secrets_and_length() {
        let log = ServerLog::new();
        let long = "x".repeat(5_000);
        let said = format!("\u{1b}[31mred\u{1b}[0m\n\n  a\tb\r\npassword=hunter2hunter2\n{long}\nno end");
        log.follow(said.as_bytes()).await;
        let lines = texts(&log);
        assert_eq!(lines[..3], ["red", "a b", "password=[redacted]"]);
        assert_eq!(lines[3], format!("{}…", &long[..LONGEST_LINE]));
        assert_eq!(lines[4..], ["no end"]);
    }

    #[test]
    fn the_oldest_lines_go_when_there_are_too_many_or_too_long_ones() {
        let log = ServerLog::new();
        for number in 0..MOST_LINES + 5 {
            log.note(number);
        }
        assert_eq!((texts(&log).len(), texts(&log)[0].as_str(), log.dropped()), (MOST_LINES, "5", 5));
        assert_eq!(log.last(2)[0].text, (MOST_LINES + 3).to_string());

        for _ in 0..MOST_LINES {
            log.add(Voice::Server, &"y ".repeat(LONGEST_LINE));
        }
        assert!(texts(&log).iter().map(String::len).sum::<usize>() <= MOST_BYTES);
    }

    #[tokio::test]
    async fn a_flood_is_counted_and_not_kept() {
        let log = ServerLog::new();
        log.follow("again\n".repeat(10_000).as_bytes()).await;
        let lines = texts(&log);
        assert!(lines.len() <= MOST_LINES, "{}", lines.len());
        assert!(lines.last().is_some_and(|line| line.ends_with("more lines within a second were left out")));
    }

    #[test]
    fn the_last_words_are_the_servers_own_and_not_from_an_earlier_life() {
        let log = ServerLog::new();
        let start = clock::now();
        log.add(Voice::Server, "no such table");
        log.note("ended");
        assert_eq!(log.last_words(start).as_deref(), Some("no such table"));
        let later = clock::now();
        assert_eq!(log.last_words(later + jiff::SignedDuration::from_millis(1)), None);
    }
}
