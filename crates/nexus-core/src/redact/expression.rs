//! Values that a shell would run or look up: they are no secrets, and who is asked must see them.

use std::ops::Range;

use super::scan::Scan;
use super::value::is_mark;

/// Bytes that may be looked at twice in one text, besides four times its length.
const LOOKED_TWICE: usize = 1 << 16;

impl Scan<'_, '_> {
    /// What is secret of an announced value: nothing, if a shell would run a part of it or it only names a variable.
    ///
    /// Until the end of its line, nothing else is announced in such a value. Of a plain line, the words before the
    /// expression are still hidden: `password: hunter2 # see <(x)`.
    pub(super) fn literal(&mut self, value: Range<usize>) -> Option<Range<usize>> {
        let bytes = &self.bytes[value.clone()];
        let before = value.start.checked_sub(1).and_then(|at| self.byte(at)).unwrap_or(b' ');
        let is_inside = before == b'`' || (matches!(before, b'<' | b'>') && bytes.starts_with(b"("));
        let Some(found) = is_inside.then_some(0).or_else(|| substitution(bytes)) else {
            let is_url = before == b'/';
            let password =
                bytes.iter().position(|b| *b == b':').filter(|_| is_url).map_or(bytes, |colon| &bytes[colon + 1..]);
            return (!is_variable(password.trim_ascii())).then_some(value);
        };
        let line = bytes.iter().position(|b| *b == b'\n').unwrap_or(bytes.len());
        self.looked_twice += bytes.len() - line;
        // A text full of them is still passed over only once.
        let is_costly = self.looked_twice > 4 * self.bytes.len() + LOOKED_TWICE;
        self.spared = value.start + if is_costly { bytes.len() } else { line };
        let words = &bytes[..found];
        let blank = words.iter().rposition(u8::is_ascii_whitespace)?;
        let words = words[..blank].trim_ascii_end();
        (!is_mark(before) && !words.is_empty()).then_some(value.start..value.start + words.len())
    }
}

/// Whether a shell would run a part of this, in double quotes or without.
pub(super) fn is_run(text: &str) -> bool {
    substitution(text.as_bytes()).is_some()
}

/// Where the first `$(`, `<(`, `>(` or backquote stands.
fn substitution(bytes: &[u8]) -> Option<usize> {
    (0..bytes.len()).find(|at| match bytes[*at] {
        b'`' => true,
        b'$' | b'<' | b'>' => bytes.get(at + 1) == Some(&b'('),
        _ => false,
    })
}

/// `$VAR`, `${VAR}` and `${{ secrets.VAR }}`, and nothing else.
fn is_variable(bytes: &[u8]) -> bool {
    let Some(rest) = bytes.strip_prefix(b"$") else { return false };
    let braces = |open: &[u8], close: &[u8]| rest.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    let name = braces(b"{{", b"}}").map(<[u8]>::trim_ascii).or_else(|| braces(b"{", b"}")).unwrap_or(rest);
    let dots = rest.starts_with(b"{{");
    name.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_')
        && name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_' || (dots && *b == b'.'))
}
