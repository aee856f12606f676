//! Reads some lines out of a file of any size, in bounded memory and work.

use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::clip;
use crate::file::FileError;
use crate::prelude::*;
use crate::secret::OpenKey;
use crate::toolbox::Abandoned;

const CHUNK: usize = 64 << 10;

/// Which lines.
#[derive(Debug)]
pub(super) struct Window {
    /// From 1.
    pub first: u64,
    pub most_lines: u64,
    pub most_chars: usize,
    /// Bytes that are gone through to find a line, or to count them all.
    pub most_bytes: u64,
}

/// The lines that were found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lines {
    pub content: String,
    pub lines: u64,
    pub total_lines: Option<u64>,
    pub next: Option<u64>,
    pub note: Option<String>,
    /// The lines begin inside a private key that began before them.
    pub in_key: bool,
}

#[derive(Debug, Error)]
#[error("line {0} is too far into the file to be found by reading")]
struct TooFar(u64);

#[derive(Debug, Error)]
#[error("nobody waits for the file any more")]
struct NobodyWaits;

/// A file whose start has been read.
pub(super) struct Reader<R> {
    source: R,
    path: PathBuf,
    start: Vec<u8>,
}

impl<R: Read> Reader<R> {
    pub(super) fn open(mut source: R, path: &Path) -> ToolResult<Self> {
        let mut start = vec![0; CHUNK];
        let mut length = 0;
        while length < CHUNK {
            match read(&mut source, &mut start[length..]).map_err(FileError::io("reading", path))? {
                0 => break,
                more => length += more,
            }
        }
        start.truncate(length);
        Ok(Self { source, path: path.to_owned(), start })
    }

    /// The first bytes, for a look at what it is.
    pub(super) fn start(&self) -> &[u8] {
        &self.start
    }

    pub(super) fn read(self, window: &Window, abandoned: &Abandoned) -> ToolResult<Lines> {
        let Self { mut source, path, start } = self;
        let mut scan = Scan::new(window);
        let mut seen = start.len() as u64;
        scan.take_in(&start);
        let mut chunk = vec![0; CHUNK];
        let mut ended = start.len() < CHUNK;
        while !ended && seen < window.most_bytes {
            if abandoned.is_set() {
                return Err(ToolError::failed(NobodyWaits));
            }
            let length = read(&mut source, &mut chunk).map_err(FileError::io("reading", &path))?;
            scan.take_in(&chunk[..length]);
            seen += length as u64;
            ended = length == 0;
        }
        if !ended && scan.line < window.first {
            let hint = "use run_command with sed, tail or a tool that knows the file";
            return Err(ToolError::refused(TooFar(window.first)).hint(hint));
        }
        Ok(scan.finish(ended))
    }
}

fn read(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Goes through a file, counts its lines and keeps those in the window.
struct Scan<'a> {
    window: &'a Window,
    /// The line the next byte belongs to, from 1.
    line: u64,
    /// Whether that line has begun.
    begun: bool,
    /// What the lines before the window leave open.
    key: OpenKey,
    kept: Vec<u8>,
    /// Bytes; four to a character at most.
    most_bytes: usize,
}

impl<'a> Scan<'a> {
    fn new(window: &'a Window) -> Self {
        // One more character than fits, to know that there is more.
        let most_bytes = window.most_chars.saturating_add(1).saturating_mul(4);
        Self { window, line: 1, begun: false, key: OpenKey::default(), kept: Vec::new(), most_bytes }
    }

    fn take_in(&mut self, mut bytes: &[u8]) {
        let end = self.window.first.saturating_add(self.window.most_lines);
        while !bytes.is_empty() {
            if self.line >= end || self.kept.len() >= self.most_bytes {
                self.count(bytes);
                return;
            }
            let before = self.window.first.saturating_sub(self.line);
            let (piece, rest) = bytes.split_at(length_of_lines(bytes, before.max(1)));
            if before > 0 {
                self.key.take_in(piece);
            } else {
                let room = self.most_bytes - self.kept.len();
                self.kept.extend_from_slice(&piece[..piece.len().min(room)]);
            }
            self.count(piece);
            bytes = rest;
        }
    }

    fn count(&mut self, bytes: &[u8]) {
        self.line += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.begun = bytes.last() != Some(&b'\n');
    }

    fn finish(self, ended: bool) -> Lines {
        let total = self.line - u64::from(!self.begun);
        let Window { first, most_chars, .. } = *self.window;
        let text = String::from_utf8_lossy(&self.kept);
        let (content, rest) = clip::split(&text, most_chars);
        let mut note = None;
        let content = if rest.is_empty() {
            content
        } else if let Some(end) = content.rfind('\n') {
            &content[..=end]
        } else {
            let at = "run_command with cut or head -c shows the rest of it";
            note = Some(format!("line {first} is longer than {most_chars} characters and was cut; {at}"));
            content
        };
        let lines = count_lines(content);
        let next = first.saturating_add(lines);
        let more = !ended || next <= total;
        if ended && lines == 0 && first > total {
            note = Some(format!("the file has {total} lines"));
        }
        Lines {
            content: content.to_owned(),
            lines,
            total_lines: ended.then_some(total),
            next: (more && lines > 0).then_some(next),
            note,
            in_key: self.key.is_open_before(&self.kept),
        }
    }
}

/// Bytes of the first `count` lines; all, if there are not so many.
fn length_of_lines(bytes: &[u8], count: u64) -> usize {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let last = usize::try_from(count).ok().and_then(|count| ends.map(|(at, _)| at).nth(count.checked_sub(1)?));
    last.map_or(bytes.len(), |at| at + 1)
}

/// A last line without an end is one too.
fn count_lines(text: &str) -> u64 {
    let ends = text.bytes().filter(|byte| *byte == b'\n').count() as u64;
    ends + u64::from(!text.is_empty() && !text.ends_with('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(content: &[u8], first: u64, most_lines: u64, most_chars: usize) -> Lines {
        let window = Window { first, most_lines, most_chars, most_bytes: u64::MAX };
        Reader::open(content, Path::new("/x")).unwrap().read(&window, &Abandoned::default()).unwrap()
    }

    #[test]
    fn lines_are_counted_from_one() {
        check(b"a\nb\nc\n", 1, 99, ("a\nb\nc\n", 3, Some(3), None));
        check(b"a\nb\nc", 2, 1, ("b\n", 1, Some(3), Some(3)));
        check(b"a\nb\nc", 3, 1, ("c", 1, Some(3), None));
        check(b"a\nb\n", 3, 1, ("", 0, Some(2), None));
        check(b"", 1, 9, ("", 0, Some(0), None));
        check(b"\n\n", 1, 1, ("\n", 1, Some(2), Some(2)));

        #[track_caller]
        fn check(content: &[u8], first: u64, most: u64, expected: (&str, u64, Option<u64>, Option<u64>)) {
            let found = lines(content, first, most, 1000);
            assert_eq!((found.content.as_str(), found.lines, found.total_lines, found.next), expected);
        }
    }

    #[test]
    fn a_reply_ends_with_a_whole_line_unless_one_line_is_too_long() {
        assert_eq!(lines("ää\nbbbb\n".as_bytes(), 1, 9, 5).content, "ää\n");
        let long = lines(b"0123456789\nx\n", 1, 9, 4);
        assert_eq!((long.content.as_str(), long.lines, long.next), ("0123", 1, Some(2)));
        assert!(long.note.unwrap().contains("line 1 is longer than 4"));
    }

    #[test]
    fn an_endless_source_is_left_after_a_while() {
        let endless = io::repeat(b'x');
        let window = Window { first: 1, most_lines: 9, most_chars: 100, most_bytes: 1 << 20 };
        let found = Reader::open(endless, Path::new("/x")).unwrap().read(&window, &Abandoned::default()).unwrap();
        assert_eq!((found.content.len(), found.total_lines), (100, None));
        let window = Window { first: 2, ..window };
        let error = Reader::open(io::repeat(b'x'), Path::new("/x")).unwrap().read(&window, &Abandoned::default());
        assert_eq!(error.unwrap_err().kind(), "refused");
    }

    proptest! {
        #[test]
        fn reading_on_gives_the_whole_file(
            content in prop::collection::vec("[a-cä]{0,30}", 0..20), most_lines in 1..20u64, most_chars in 40..99usize,
        ) {
            let content: String = content.iter().flat_map(|line| [line, "\n"]).collect();
            let (mut all, mut next) = (String::new(), Some(1));
            while let Some(first) = next {
                let found = lines(content.as_bytes(), first, most_lines, most_chars);
                all += &found.content;
                next = found.next;
            }
            prop_assert_eq!(all, content);
        }
    }
}
