//! Secrets that stand on other lines than their names, or in another field: blocks, pairs and elements.

use std::ops::Range;

use super::names::{Reach, begins};
use super::scan::{Name, Scan, is_name};

impl Scan<'_, '_> {
    /// `password: |` and the lines below it that are indented further. None if no block starts at `at`; within, None
    /// if it has no lines.
    pub(super) fn block(&self, at: usize, name: Name) -> Option<Option<Range<usize>>> {
        if !matches!(self.byte(at)?, b'|' | b'>') {
            return None;
        }
        let header = self.bytes[at + 1..].iter().take(3).take_while(|b| matches!(b, b'+' | b'-' | b'0'..=b'9')).count();
        let mut rest = self.blanks_end(at + 1 + header);
        if self.byte(rest) == Some(b'#') {
            rest = self.line_end_from(rest);
        }
        rest += usize::from(self.byte(rest) == Some(b'\r'));
        if self.byte(rest).is_some_and(|b| b != b'\n') {
            return None;
        }
        let line = self.bytes[..name.start].iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        let is_indent = |b: &&u8| matches!(b, b' ' | b'\t' | b'-' | b'+');
        let column = self.bytes[line..name.start].iter().take_while(is_indent).count();
        let (mut start, mut end, mut next) = (None, rest, rest + 1);
        while next < self.bytes.len() {
            let indent = self.indent(next);
            let after = self.line_end_from(next);
            let is_blank = self.bytes[next..after].iter().all(u8::is_ascii_whitespace);
            if !is_blank && indent <= column {
                break;
            }
            if !is_blank {
                start.get_or_insert(next + indent);
                end = after - usize::from(self.bytes[after - 1] == b'\r');
            }
            next = after + 1;
        }
        Some(start.map(|start| start..end))
    }

    /// Blanks at the start of a line, and the mark of a diff before them.
    fn indent(&self, line: usize) -> usize {
        let mark = usize::from(matches!(self.byte(line), Some(b'+' | b'-')));
        mark + self.bytes[line + mark..].iter().take_while(|b| matches!(b, b' ' | b'\t')).count()
    }

    fn line_end_from(&self, at: usize) -> usize {
        self.bytes[at..].iter().position(|b| *b == b'\n').map_or(self.bytes.len(), |length| at + length)
    }

    /// The value of a pair whose name was this one: `{"name": "DB_PASSWORD", "value": …}`, `- name: X_TOKEN` and
    /// `value: …` on the next line.
    pub(super) fn paired(&self, name: Name) -> Option<Range<usize>> {
        let mut at = self.quote(name.end).map_or(name.end, |quote| quote.inside);
        at += usize::from(self.byte(at) == Some(b','));
        let blanks = self.bytes.get(at..)?.iter().take_while(|b| b.is_ascii_whitespace()).count();
        let starts_line = self.bytes[at..at + blanks].contains(&b'\n');
        let quote = self.quote(at + blanks);
        let start = quote.map_or(at + blanks, |quote| quote.inside);
        let end = start + "value".len();
        if start == name.end || !begins(self.bytes.get(start..)?, "value") || self.byte(end).is_none_or(is_name) {
            return None;
        }
        self.separated(end)?;
        self.assigned(Name { start, end, starts_line, ..name }, Reach::Word)
    }

    /// Whether a separator follows the name that ends here.
    fn separated(&self, end: usize) -> Option<()> {
        let at = self.quote(end).map_or(end, |quote| quote.inside);
        matches!(self.byte(self.blanks_end(at)), Some(b':' | b'=')).then_some(())
    }

    /// `<password>…</password>`.
    pub(super) fn tagged(&self, name: Name) -> Option<Range<usize>> {
        if self.byte(name.end) != Some(b'>') || !self.bytes[self.floor..name.start].ends_with(b"<") {
            return None;
        }
        let start = name.end + 1;
        let end = start + self.bytes[start..].iter().position(|b| *b == b'<')?;
        let closes = self.bytes[end + 1..]
            .strip_prefix(b"/")
            .is_some_and(|tag| tag.get(..name.end - name.start) == Some(&self.bytes[name.start..name.end]));
        (closes && end > start).then_some(start..end)
    }
}
