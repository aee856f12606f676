//! What a stream said, bounded in memory: its start and its end are kept, what lay between is counted.

use std::collections::VecDeque;

use nexus_core::text;

/// Collects a stream's bytes while it flows.
#[derive(Debug)]
pub(super) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Of head and of tail, each.
    most: usize,
    lost: u64,
}

impl Capture {
    pub(super) fn new(spool: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), most: spool.div_ceil(2), lost: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(self.most - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(self.most);
        self.tail.drain(..excess);
        self.lost += excess as u64;
    }

    /// The last line with something on it, as far as it is short.
    pub(super) fn last_line(&self) -> String {
        const LOOK_BACK: usize = 1_000;
        let from_tail = self.tail.iter().rev().copied();
        let from_head = self.head.iter().rev().copied();
        let mut end: Vec<u8> = from_tail.chain(from_head).take(LOOK_BACK).collect();
        end.reverse();
        let end = String::from_utf8_lossy(&end);
        let clean = text::clean(&end);
        let line = clean.split(['\n', '\r']).map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
        text::cut(line, 200).into_owned()
    }

    pub(super) fn finish(self) -> Captured {
        Captured { head: self.head, tail: self.tail.into(), lost: self.lost }
    }
}

/// What a stream said, from start to end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    pub head: Vec<u8>,
    /// Goes on where the head ends, or `lost` bytes later.
    pub tail: Vec<u8>,
    pub lost: u64,
}

impl Captured {
    /// As clean text. Cleaned as a whole, so that no cut made later can fall inside an escape sequence.
    pub fn into_text(mut self) -> String {
        let said = if self.lost == 0 {
            self.head.append(&mut self.tail);
            lossy(self.head)
        } else {
            format!("{}\n… {} bytes were not kept …\n{}", lossy(self.head), self.lost, lossy(self.tail))
        };
        match text::clean(&said) {
            std::borrow::Cow::Borrowed(_) => said,
            std::borrow::Cow::Owned(clean) => clean,
        }
    }
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn capture(spool: usize, chunks: &[&[u8]]) -> Capture {
        let mut capture = Capture::new(spool);
        chunks.iter().for_each(|chunk| capture.push(chunk));
        capture
    }

    #[test]
    fn the_middle_is_dropped_and_counted() {
        let captured = capture(4, &[b"abc", b"defg", b"h"]).finish();
        assert_eq!(captured, Captured { head: b"ab".into(), tail: b"gh".into(), lost: 4 });
        assert_eq!(captured.into_text(), "ab\n… 4 bytes were not kept …\ngh");
    }

    #[test]
    fn a_character_between_head_and_tail_is_whole() {
        assert_eq!(capture(4, &["aäb".as_bytes()]).finish().into_text(), "aäb");
        assert_eq!(capture(8, &[b"a\xffb"]).finish().into_text(), "a\u{fffd}b");
    }

    #[test]
    fn the_last_line_is_the_last_with_words_on_it() {
        assert_eq!(capture(99, &[b"one\ntwo\n\n"]).last_line(), "two");
        assert_eq!(capture(99, &[b"10%\r\x1b[K20%\r"]).last_line(), "20%");
        assert_eq!(capture(8, &[b"abcdefgh\nij"]).last_line(), "ij");
        assert_eq!(capture(8, &[]).last_line(), "");
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_every_byte_is_accounted_for(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
            spool in 0..64usize,
        ) {
            let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            let all = chunks.concat();
            let captured = capture(spool, &chunks).finish();
            prop_assert!(captured.head.len() + captured.tail.len() <= spool + 1);
            prop_assert_eq!(captured.head.len() + captured.tail.len() + captured.lost as usize, all.len());
            prop_assert!(all.starts_with(&captured.head));
            prop_assert!(all.ends_with(&captured.tail));
        }
    }
}
