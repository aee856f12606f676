//! Takes what a program writes apart into lines: valid text without terminal escapes, each of a bounded length.

use nexus_core::text;

/// Bytes. What is longer is cut: a program may write megabytes without a line end.
pub const LONGEST_LINE: usize = 4096;

/// Whether a piece of text is the end of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    Line,
    /// The line goes on in the next piece.
    Not,
}

/// What has come of one stream and is not yet a line.
#[derive(Debug, Default)]
pub struct Lines {
    partial: Vec<u8>,
}

impl Lines {
    pub fn feed(&mut self, mut bytes: &[u8], mut out: impl FnMut(&str, Ends)) {
        while let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = (&bytes[..at], &bytes[at + 1..]);
            bytes = rest;
            if self.partial.is_empty() && line.len() <= LONGEST_LINE {
                give(line, Ends::Line, &mut out);
                continue;
            }
            self.grow(line, &mut out);
            give(&std::mem::take(&mut self.partial), Ends::Line, &mut out);
        }
        self.grow(bytes, &mut out);
    }

    /// No line end has come for a while, or will ever come: what is there is given away as it is.
    pub fn flush(&mut self, ends: Ends, mut out: impl FnMut(&str, Ends)) {
        let whole = match ends {
            Ends::Line => self.partial.len(),
            // The rest of a letter may be on its way.
            Ends::Not => boundary(&self.partial, self.partial.len()),
        };
        let rest = self.partial.split_off(whole);
        let piece = std::mem::replace(&mut self.partial, rest);
        if !piece.is_empty() {
            give(&piece, ends, &mut out);
        }
    }

    pub fn has_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    fn grow(&mut self, mut bytes: &[u8], out: &mut impl FnMut(&str, Ends)) {
        while self.partial.len() + bytes.len() > LONGEST_LINE {
            let (fits, rest) = bytes.split_at(LONGEST_LINE - self.partial.len());
            self.partial.extend_from_slice(fits);
            bytes = rest;
            let at = boundary(&self.partial, LONGEST_LINE);
            let rest = self.partial.split_off(at);
            give(&std::mem::replace(&mut self.partial, rest), Ends::Not, out);
        }
        self.partial.extend_from_slice(bytes);
    }
}

fn give(bytes: &[u8], ends: Ends, out: &mut impl FnMut(&str, Ends)) {
    let line = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    // As a terminal shows it: what follows a carriage return is written over what was before.
    let shown = line.iter().rposition(|byte| *byte == b'\r').map_or(line, |at| &line[at + 1..]);
    out(&text::clean(&String::from_utf8_lossy(shown)), ends);
}

/// The last place up to `most` where no letter is cut through. Bytes that are no text have none, and are cut anywhere.
fn boundary(bytes: &[u8], most: usize) -> usize {
    let first = most.saturating_sub(3);
    for at in (first..most).rev() {
        let needs = match bytes[at] {
            0x00..=0x7f => return most,
            0x80..=0xbf => continue,
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xff => 4,
        };
        return if at + needs > most && at > 0 { at } else { most };
    }
    most
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All pieces, lines ended by `|`.
    fn split(chunks: &[&[u8]]) -> String {
        let (mut lines, mut said) = (Lines::default(), String::new());
        let mut out = |piece: &str, ends| {
            said.push_str(piece);
            if ends == Ends::Line {
                said.push('|');
            }
        };
        chunks.iter().for_each(|chunk| lines.feed(chunk, &mut out));
        lines.flush(Ends::Line, &mut out);
        said
    }

    #[test]
    fn bytes_become_lines_of_text() {
        check(&[b"one\ntwo\n"], "one|two|");
        check(&[b"o", b"ne\r\ntw", b"o"], "one|two|");
        check(&[b"a\n\nb\n"], "a||b|");
        check(&[b"10%\r20%\r30%\n"], "30%|");
        check(&[b"\x1b[31mred\x1b[0m\x07\n"], "red|");
        check(&[b"bad \xff\xfe bytes\n"], "bad \u{fffd}\u{fffd} bytes|");
        check(&["hal".as_bytes(), b"f \xe2\x82", b"\xac\n"], "half €|");
        check(&[b""], "");

        #[track_caller]
        fn check(chunks: &[&[u8]], expected: &str) {
            assert_eq!(split(chunks), expected);
        }
    }

    #[test]
    fn half_a_letter_waits_for_its_other_half() {
        let (mut lines, mut said) = (Lines::default(), Vec::new());
        lines.feed(b"a prompt \xe2\x82", |piece: &str, _| said.push(piece.to_owned()));
        lines.flush(Ends::Not, |piece: &str, _| said.push(piece.to_owned()));
        lines.feed(b"\xac\n", |piece: &str, _| said.push(piece.to_owned()));
        assert_eq!(said, ["a prompt ", "€"]);
    }

    proptest! {
        /// However the bytes arrive, and however long a line is, no letter is lost and no piece is too long.
        #[test]
        fn long_lines_are_cut_between_letters(text in "[a-zé€🎉]{0,6000}", chunk in 1usize..5000) {
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(chunk).collect();
            let (mut lines, mut whole, mut longest) = (Lines::default(), String::new(), 0);
            let mut out = |piece: &str, _| {
                longest = longest.max(piece.len());
                whole.push_str(piece);
            };
            chunks.iter().for_each(|chunk| lines.feed(chunk, &mut out));
            lines.flush(Ends::Line, &mut out);
            prop_assert_eq!(whole, text);
            prop_assert!(longest <= LONGEST_LINE);
        }

        #[test]
        fn whatever_comes_is_taken(bytes in prop::collection::vec(any::<u8>(), 0..9000), chunk in 1usize..5000) {
            let chunks: Vec<&[u8]> = bytes.chunks(chunk).collect();
            split(&chunks);
        }
    }
}
