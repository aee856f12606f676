//! How far a value reaches: a word, a quoted string, a bracket, the rest of a line.

use std::ops::Range;

use super::scan::Scan;

/// An opening quote, with as many backslashes before it as levels of JSON made: `"`, `\"`, `\\\"`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quote {
    pub(super) mark: u8,
    pub(super) escapes: usize,
    pub(super) inside: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lines {
    One,
    Many,
}

pub(super) fn is_mark(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'' | b'`')
}

/// Whether what follows this word is run by a shell: `-c`, `-lc`, `eval`.
pub(super) fn is_script_option(word: &[u8]) -> bool {
    word == b"eval"
        || (word.len() <= 6 && matches!(word, [b'-', letters @ .., b'c'] if letters.iter().all(u8::is_ascii_lowercase)))
}

/// Where the mark stands that closes the quote. A mark inside has more backslashes than the outer ones,
/// a closing one after backslashes has a multiple of them more.
fn closing(bytes: &[u8], quote: Quote, lines: Lines) -> Option<usize> {
    let mut escapes = 0;
    for (i, byte) in bytes[quote.inside..].iter().enumerate() {
        match *byte {
            b'\\' => escapes += 1,
            b'\n' if lines == Lines::One => return None,
            mark if mark == quote.mark && escapes % (2 * quote.escapes + 2) == quote.escapes => {
                return Some(quote.inside + i);
            }
            _ => escapes = 0,
        }
    }
    None
}

impl Scan<'_, '_> {
    pub(super) fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    /// The value that starts here, unless it is empty.
    pub(super) fn some_value(&self, at: usize) -> Option<Range<usize>> {
        Some(self.value(at)).filter(|value| !value.is_empty())
    }

    /// What stands between the quotes, or the word. A key block is one value, with all its lines.
    pub(super) fn value(&self, at: usize) -> Range<usize> {
        let Some(quote) = self.quote(at) else { return at..self.word_end(at) };
        let Some(close) = self.closing(quote, Lines::Many) else { return quote.inside..self.bytes.len() };
        let after = close + 1;
        // In a shell `'a'b` and `'a'\''b'` are one word.
        let goes_on = |b: u8| b.is_ascii_alphanumeric() || b == b'\\' || is_mark(b);
        if quote.escapes == 0 && self.byte(after).is_some_and(goes_on) {
            return at..self.word_end(after);
        }
        quote.inside..close - quote.escapes
    }

    /// Where the key block ends that starts here; here, if there is none. A word or a line that one starts in has
    /// all of its lines.
    fn key_end(&self, at: usize) -> usize {
        self.key_block(at).map_or(at, |block| block.end)
    }

    pub(super) fn quote(&self, at: usize) -> Option<Quote> {
        let escapes = self.bytes.get(at..)?.iter().position(|b| *b != b'\\')?;
        let mark = self.byte(at + escapes).filter(|b| is_mark(*b))?;
        Some(Quote { mark, escapes, inside: at + escapes + 1 })
    }

    pub(super) fn closing(&self, quote: Quote, lines: Lines) -> Option<usize> {
        closing(self.bytes, quote, lines)
    }

    /// Where a word ends that is not quoted; quotes may open within it: `Some("x")`, `a"b c"`.
    pub(super) fn word_end(&self, from: usize) -> usize {
        let mut at = from;
        while let Some(byte) = self.byte(at) {
            match byte {
                b'&' | b';' | b')' => return at,
                _ if byte.is_ascii_whitespace() => return at,
                b',' if self.byte(at + 1).is_none_or(|next| next.is_ascii_whitespace() || is_mark(next)) => return at,
                b'\\' | b'"' | b'\'' | b'`' => match self.mark_in_word(at) {
                    Some(next) => at = next,
                    None => return at,
                },
                b'-' => at = self.key_end(at).max(at + 1),
                _ => at += 1,
            }
        }
        at
    }

    /// Where a word goes on after the quote or the backslashes at `at`; None if they end it.
    fn mark_in_word(&self, at: usize) -> Option<usize> {
        let Some(quote) = self.quote(at) else {
            // The backslash that continues a line is not part of the word.
            let ends_line = matches!(self.bytes[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]);
            let escapes = self.bytes[at..].iter().take_while(|b| **b == b'\\').count();
            return (!ends_line).then_some(at + escapes.saturating_sub(1).max(1));
        };
        let before = at.checked_sub(1).and_then(|at| self.byte(at)).unwrap_or(b' ');
        let next = self.byte(quote.inside).unwrap_or(b' ');
        let opens = b"([{=:,<$@".contains(&before) || next.is_ascii_alphanumeric() || next == b'$' || is_mark(next);
        if !opens {
            return None;
        }
        let is_apostrophe = quote.mark == b'\'' && before.is_ascii_alphanumeric() && next.is_ascii_alphanumeric();
        // `'\''` is how a shell's word holds a quote.
        let is_literal = quote.escapes == 1 && is_mark(next);
        if is_apostrophe || is_literal {
            return Some(quote.inside);
        }
        Some(self.closing(quote, Lines::Many).map_or(self.bytes.len(), |close| close + 1))
    }

    /// Where the bracket closes that opens at `from`, or the end of the text.
    pub(super) fn bracket_end(&self, from: usize) -> usize {
        let (mut at, mut depth) = (from, 0_usize);
        while let Some(byte) = self.byte(at) {
            at += 1;
            match byte {
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth -= 1,
                b'\\' | b'"' => {
                    if let Some(quote) = self.quote(at - 1).filter(|quote| quote.mark == b'"') {
                        at = self.closing(quote, Lines::Many).map_or(self.bytes.len(), |close| close + 1);
                    } else {
                        at += self.bytes[at..].iter().take_while(|b| **b == b'\\').count();
                    }
                }
                _ => {}
            }
            if depth == 0 {
                return at;
            }
        }
        at
    }

    /// Where the quote closes that was opened right before `name`: `"PASSWORD=correct horse"`. Looks not far.
    pub(super) fn enclosing_end(&self, from: usize, name: usize) -> Option<usize> {
        const FAR: usize = 1_000;
        let quote = self.enclosing(from, name).filter(|_| !self.is_script(name))?;
        let near = &self.bytes[..self.bytes.len().min(from + FAR)];
        closing(near, quote, Lines::One).map(|close| close - quote.escapes)
    }

    /// Whether the quote before `name` begins a script: `sh -c "PASSWORD=x; ls"`, `["sh", "-c", "PASSWORD=x; ls"]`.
    fn is_script(&self, name: usize) -> bool {
        const FAR: usize = 32;
        let before = &self.bytes[self.floor.max(name.saturating_sub(FAR))..name];
        let is_between = |b: &u8| b.is_ascii_whitespace() || is_mark(*b) || matches!(b, b'\\' | b',');
        let end = before.iter().rposition(|b| !is_between(b)).map_or(0, |last| last + 1);
        let start = before[..end].iter().rposition(is_between).map_or(0, |last| last + 1);
        is_script_option(&before[start..end])
    }

    /// The quote that was opened right before `name`, as if its inside started at `from`.
    fn enclosing(&self, from: usize, name: usize) -> Option<Quote> {
        let before = &self.bytes[self.floor..name];
        let (mark, before) = before.split_last().filter(|(mark, _)| is_mark(**mark))?;
        let escapes = before.iter().rev().take_while(|b| **b == b'\\').count();
        Some(Quote { mark: *mark, escapes, inside: from })
    }

    /// Where the line ends, or the quote that was opened right before `name`.
    pub(super) fn line_end(&self, from: usize, name: usize) -> usize {
        if let Some(quote) = self.enclosing(from, name)
            && let Some(close) = self.closing(quote, Lines::One)
        {
            return close - quote.escapes;
        }
        let mut at = from;
        while let Some(byte) = self.byte(at) {
            match byte {
                b'\n' => break,
                b'-' => at = self.key_end(at).max(at + 1),
                _ => at += 1,
            }
        }
        from + self.bytes[from..at].strip_suffix(b"\r").map_or(at - from, <[u8]>::len)
    }

    /// Spaces and tabs, and line ends a backslash takes back.
    pub(super) fn blanks_end(&self, from: usize) -> usize {
        let mut at = from;
        loop {
            at += match self.bytes.get(at..).unwrap_or_default() {
                [b' ' | b'\t', ..] => 1,
                [b'\\', b'\n', ..] => 2,
                [b'\\', b'\r', b'\n', ..] => 3,
                _ => return at,
            };
        }
    }
}
