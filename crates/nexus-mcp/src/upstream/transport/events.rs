//! Reads a stream of server-sent events, piece by piece, however long a line claims to be.

use std::io::BufRead;
use std::time::Duration;

use super::oversized::{self, Whose};

/// Bytes of a field that is not data: names, ids, times.
const LONGEST_FIELD: usize = 4 * 1024;
/// A server may ask to be left alone for so long before the next try, no longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// What a stream has brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Of type `message`.
    Message(Vec<u8>),
    /// Of another type.
    Other(String, Vec<u8>),
    /// Larger than allowed: nothing of it is left but whose it was.
    Oversized(Whose),
}

/// Where one has to go on reading, should the stream break.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) last_id: Option<String>,
    pub(super) pause: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Events {
    /// Bytes that the data of one event may have.
    limit: usize,
    /// The line that has not ended yet.
    line: Vec<u8>,
    kind: String,
    data: Option<Vec<u8>>,
    oversized: Option<Whose>,
    /// The rest of this line is passed over.
    passing_over: bool,
    /// A `\n` that follows belongs to the line end before.
    after_return: bool,
    began: bool,
    pub(super) position: Position,
}

impl Events {
    pub(super) fn new(limit: usize, position: Position) -> Self {
        Self {
            limit,
            line: Vec::new(),
            kind: String::new(),
            data: None,
            oversized: None,
            passing_over: false,
            after_return: false,
            began: false,
            position,
        }
    }

    /// Takes in what has come, and hands over every event that is complete.
    pub(super) fn take(&mut self, mut piece: &[u8], found: &mut dyn FnMut(Event)) {
        while !piece.is_empty() {
            if std::mem::take(&mut self.after_return)
                && let Some(rest) = piece.strip_prefix(b"\n")
            {
                piece = rest;
                continue;
            }
            let (part, end) = until_line_end(piece);
            self.extend(part);
            piece = &piece[part.len()..];
            if let Some(end) = end {
                self.after_return = end == b'\r';
                piece = &piece[1..];
                self.end_line(found);
            }
        }
    }

    fn extend(&mut self, part: &[u8]) {
        if self.passing_over {
            return;
        }
        self.line.extend_from_slice(part);
        let is_data = self.line.starts_with(b"data");
        let held = self.data.as_ref().map_or(0, Vec::len);
        if !is_data && self.line.len() > LONGEST_FIELD {
            self.passing_over = true;
            self.line = Vec::new();
        } else if is_data && self.line.len() + held > self.limit + b"data: ".len() {
            self.overflow();
        }
    }

    /// Keeps whose it is, and nothing else.
    fn overflow(&mut self) {
        let line = std::mem::take(&mut self.line);
        let beginning = self.data.take().unwrap_or_else(|| value_of(line, b"data".len()));
        self.oversized = Some(oversized::by_its_beginning(&beginning));
        self.passing_over = true;
    }

    fn end_line(&mut self, found: &mut dyn FnMut(Event)) {
        let mut line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.passing_over) {
            return;
        }
        if !std::mem::replace(&mut self.began, true) && line.starts_with("\u{feff}".as_bytes()) {
            line.drain(..3);
        }
        if line.is_empty() {
            return self.end_event(found);
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        match &line[..colon] {
            b"data" => self.add_data(value_of(line, colon)),
            b"event" => self.kind = text_of(value_of(line, colon)),
            b"id" => {
                let id = text_of(value_of(line, colon));
                // It goes back in a header.
                if id.bytes().all(|byte| (b' '..0x7f).contains(&byte)) {
                    self.position.last_id = (!id.is_empty()).then_some(id);
                }
            }
            b"retry" => {
                let pause = text_of(value_of(line, colon)).parse().map(Duration::from_millis);
                self.position.pause = pause.ok().map(|pause| pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
            }
            _ => {}
        }
    }

    fn add_data(&mut self, value: Vec<u8>) {
        if self.oversized.is_some() {
            return;
        }
        match &mut self.data {
            None => self.data = Some(value),
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(&value);
            }
        }
    }

    fn end_event(&mut self, found: &mut dyn FnMut(Event)) {
        let kind = std::mem::take(&mut self.kind);
        let data = self.data.take();
        if let Some(whose) = self.oversized.take() {
            return found(Event::Oversized(whose));
        }
        // Without data it only moves the position.
        match data {
            Some(data) if data.is_empty() => {}
            Some(data) if kind.is_empty() || kind == "message" => found(Event::Message(data)),
            Some(data) => found(Event::Other(kind, data)),
            None => {}
        }
    }
}

/// The part before the first line end, and which one it is. The search is that of the C library; a lone `\r` is looked
/// for only where the line ends, and JSON holds none.
fn until_line_end(piece: &[u8]) -> (&[u8], Option<u8>) {
    let mut rest = piece;
    let passed = rest.skip_until(b'\n').unwrap_or(0);
    let line = match piece[..passed].strip_suffix(b"\n") {
        Some(line) => line,
        None => piece,
    };
    let mut rest = line;
    let passed = rest.skip_until(b'\r').unwrap_or(0);
    match line[..passed].strip_suffix(b"\r") {
        Some(part) => (part, Some(b'\r')),
        None => (line, (line.len() < piece.len()).then_some(b'\n')),
    }
}

/// What stands behind the colon, less one space. A large value is moved, not copied.
fn value_of(mut line: Vec<u8>, colon: usize) -> Vec<u8> {
    let space = usize::from(line.get(colon + 1) == Some(&b' '));
    line.drain(..(colon + 1 + space).min(line.len()));
    line
}

fn text_of(value: Vec<u8>) -> String {
    String::from_utf8(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(stream: &[u8], step: usize, limit: usize) -> (Vec<Event>, Position) {
        let (mut events, mut found) = (Events::new(limit, Position::default()), Vec::new());
        for piece in stream.chunks(step) {
            events.take(piece, &mut |event| found.push(event));
        }
        (found, events.position)
    }

    fn message(text: &str) -> Event {
        Event::Message(text.as_bytes().to_vec())
    }

    #[test]
    fn events_are_read_however_they_are_cut() {
        let stream = "\u{feff}: hi\r\ndata: {\"a\":1}\r\n\r\nevent: endpoint\ndata:/x\n\ndata: b\rdata: c\r\rid: 7\nretry: 500\ndata:\n\nid: 8\nevent: message\ndata: d\n\nnonsense\ndata: unfinished\n";
        for step in 1..stream.len() {
            let (found, position) = read(stream.as_bytes(), step, 100);
            let endpoint = Event::Other("endpoint".to_owned(), b"/x".to_vec());
            assert_eq!(found, [message(r#"{"a":1}"#), endpoint, message("b\nc"), message("d")], "{step}");
            assert_eq!(position.last_id.as_deref(), Some("8"));
            assert_eq!(position.pause, Some(Duration::from_millis(500)));
        }
    }

    #[test]
    fn a_large_event_is_passed_over_and_the_next_is_read() {
        let long = "x".repeat(200);
        let stream = format!(
            "data: {{\"id\":5,\"result\":\"{long}\"}}\n\ndata: ok\n\ndata: {{\"id\":6,\ndata: \"{long}\"}}\n\ndata: ok\n\n"
        );
        for step in [1, 7, 50, 1_000] {
            let (found, _) = read(stream.as_bytes(), step, 100);
            let oversized = |id| Event::Oversized(Whose::Request(id));
            assert_eq!(found, [oversized(5), message("ok"), oversized(6), message("ok")], "{step}");
        }
    }

    #[test]
    fn a_field_without_end_takes_no_memory() {
        let mut events = Events::new(100, Position::default());
        for _ in 0..1_000 {
            events.take(&[b'y'; 1_000], &mut |_| {});
            assert!(events.line.capacity() <= 16 * 1024);
        }
    }

    #[test]
    fn an_id_that_no_header_can_carry_is_not_kept() {
        assert_eq!(read("id: a\nid: ä\nid: b\0\ndata: x\n\n".as_bytes(), 3, 100).1.last_id.as_deref(), Some("a"));
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(bytes in proptest::collection::vec(any::<u8>(), 0..300), step in 1usize..40) {
            let (found, _) = read(&bytes, step, 50);
            let (again, _) = read(&bytes, 300, 50);
            prop_assert_eq!(found, again);
        }
    }
}
