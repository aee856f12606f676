//! What a server has said beside the protocol, and what happened to it: kept in memory, bounded, fit to be shown.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout_at};

use nexus_core::{clock, redact, text};

/// How much is kept; the oldest goes first.
const MOST_LINES: usize = 1_000;
/// Bytes of one line; the rest of it is not read into memory.
const LONGEST_LINE: usize = 2_000;
/// Bytes of all lines: a hundred servers that never stop talking must not fill the hub.
const MOST_BYTES: usize = 256 * 1024;

/// Of a server that says more than that only the newest lines are kept until the next second: every line costs a look
/// for secrets.
const LINES_A_SECOND: usize = 500;
const A_SECOND: Duration = Duration::from_secs(1);

/// Newest lines of a flood that are kept: the last words of a server that dies in it are among them.
const NEWEST: usize = 50;

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
        let mut lines = Lines::of(self);
        loop {
            let read = match lines.settles_at() {
                None => stream.read(&mut buffer).await,
                Some(at) => match timeout_at(at, stream.read(&mut buffer)).await {
                    Ok(read) => read,
                    Err(_) => {
                        lines.settle();
                        continue;
                    }
                },
            };
            let Ok(length @ 1..) = read else { break };
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
    /// Of those that are too many, the newest.
    newest: VecDeque<Vec<u8>>,
    passed_over: usize,
}

impl<'a> Lines<'a> {
    fn of(log: &'a ServerLog) -> Self {
        Self { log, line: Vec::new(), since: Instant::now(), said: 0, newest: VecDeque::new(), passed_over: 0 }
    }

    /// When what is kept back is to be shown at the latest.
    fn settles_at(&self) -> Option<Instant> {
        (!self.newest.is_empty()).then(|| self.since + A_SECOND)
    }

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
        if self.since.elapsed() >= A_SECOND {
            self.settle();
        }
        if self.said < LINES_A_SECOND {
            self.said += 1;
            self.log.add(Voice::Server, &String::from_utf8_lossy(&self.line));
        } else {
            self.newest.push_back(std::mem::take(&mut self.line));
            if self.newest.len() > NEWEST {
                self.passed_over += 1;
                self.line = self.newest.pop_front().unwrap_or_default();
            }
        }
        self.line.clear();
    }

    /// A new second begins.
    fn settle(&mut self) {
        if self.passed_over > 0 {
            self.log.note(format_args!("{} more lines within a second were left out", self.passed_over));
        }
        for line in self.newest.drain(..) {
            self.log.add(Voice::Server, &String::from_utf8_lossy(&line));
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
    use tokio::io::AsyncWriteExt;

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
    async fn of_a_flood_the_newest_lines_are_kept_and_the_rest_is_counted() {
        let log = ServerLog::new();
        log.follow(format!("{}out of memory", "again\n".repeat(10_000)).as_bytes()).await;
        let lines = texts(&log);
        assert!(lines.len() <= MOST_LINES, "{}", lines.len());
        assert!(lines.iter().any(|line| line.ends_with("more lines within a second were left out")));
        assert_eq!(lines.last().map(String::as_str), Some("out of memory"));
        assert_eq!(log.last_words(Timestamp::MIN).as_deref(), Some("out of memory"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_said_last_is_shown_within_a_second_while_the_server_lives_on() {
        let log = ServerLog::new();
        let (mut server, here) = tokio::io::duplex(1 << 20);
        server.write_all(format!("{}the last\n", "again\n".repeat(1_000)).as_bytes()).await.unwrap();
        assert!(timeout_at(Instant::now() + 2 * A_SECOND, log.follow(here)).await.is_err(), "it lives on");
        assert_eq!(texts(&log).last().map(String::as_str), Some("the last"));
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
