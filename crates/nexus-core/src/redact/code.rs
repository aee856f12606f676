//! Values without quotes that are source code: types, calls, other variables.

use super::names::begins;
use super::scan::Scan;

/// Types that are written in lower case, and values that are none.
const TYPES: &[&str] = &[
    "any",
    "bool",
    "boolean",
    "bytes",
    "char",
    "float",
    "int",
    "integer",
    "None",
    "null",
    "number",
    "object",
    "str",
    "string",
    "String",
    "u32",
    "u64",
    "undefined",
    "unknown",
    "usize",
    "void",
];

/// What begins an expression after `=`.
const KEYWORDS: &[&str] = &["await", "function", "if", "lambda", "match", "move", "new", "unsafe", "yield"];

/// Parts of the names of types that are made for secrets.
const TELLING: &[&str] = &["Cookie", "Credential", "Key", "Password", "Secret", "Token"];

/// A type's parameters are not longer.
const FAR: usize = 200;

impl Scan<'_, '_> {
    /// `token: Token,` and `secret: string)`: after a colon stands a type.
    pub(super) fn is_type(&self, at: usize) -> bool {
        let start = self.after_reference(at);
        let end = self.path_end(start);
        let path = &self.bytes[start..end];
        let is_known = TYPES.iter().any(|name| name.as_bytes() == path);
        let last = path.rsplit(|b| matches!(b, b':' | b'.')).next().unwrap_or_default();
        let is_capital = last.first().is_some_and(u8::is_ascii_uppercase) && !last.iter().any(u8::is_ascii_digit);
        let is_name = is_capital && last.iter().any(u8::is_ascii_lowercase);
        if !is_known && !is_name {
            return false;
        }
        let Some(after) = self.parameters_end(end) else { return false };
        let is_telling = TELLING.iter().any(|word| path.windows(word.len()).any(|part| part == word.as_bytes()));
        let is_certain = is_known || after > end || start > at || is_telling;
        let after = after + if self.bytes[after..].starts_with(b"[]") { 2 } else { 0 };
        let rest = &self.bytes[self.blanks_end(after)..];
        match rest {
            [b',' | b';' | b')' | b'}' | b'|' | b'=', ..] => true,
            [] | [b'\n' | b'\r' | b'#', ..] | [b'/', b'/', ..] => is_certain,
            _ => false,
        }
    }

    /// `token = lexer.next();`, `token = other_token;`, `token => {`: after an equals sign stands an expression.
    /// `spaced` is whether there are blanks around it.
    pub(super) fn is_code(&self, at: usize, spaced: bool) -> bool {
        if self.is_call(at) || self.is_nothing(at) {
            return true;
        }
        if !spaced {
            return false;
        }
        if matches!(self.bytes[at..], [b'{' | b'[' | b'(' | b'|'] | [b'{' | b'[' | b'(' | b'|', b'\n' | b'\r', ..]) {
            return true;
        }
        let start = self.after_reference(at);
        let end = self.path_end(start);
        let path = &self.bytes[start..end];
        let is_keyword = KEYWORDS.iter().any(|word| word.as_bytes() == path);
        if is_keyword && self.byte(end) == Some(b' ') {
            return true;
        }
        let is_own = [&b"self."[..], b"this."].iter().any(|own| path.starts_with(own));
        let is_plain = !path.is_empty() && path.iter().all(|b| b.is_ascii_lowercase() || b"_.:".contains(b));
        match self.byte(end) {
            Some(b';' | b',' | b')') => is_own || is_plain,
            Some(b'[') => is_own || (is_plain && path.contains(&b'.')),
            None | Some(b'\n' | b'\r' | b' ') => is_own,
            _ => false,
        }
    }

    /// `token=None,`.
    fn is_nothing(&self, at: usize) -> bool {
        let end = self.path_end(at);
        let path = &self.bytes[at..end];
        [&b"None"[..], b"null", b"nil", b"undefined"].contains(&path)
            && self.byte(end).is_none_or(|b| b.is_ascii_whitespace() || b",;)}".contains(&b))
    }

    /// A path and parentheses. `Some("x")` and `String::from("x")` are how a value is written; so may `abc(123)` be.
    pub(super) fn is_call(&self, at: usize) -> bool {
        let start = self.after_reference(at);
        let end = self.path_end(start);
        if end == start || self.byte(end) != Some(b'(') {
            return false;
        }
        let near = &self.bytes[end + 1..self.bytes.len().min(end + FAR)];
        let near = &near[..near.iter().position(|b| *b == b'\n').unwrap_or(near.len())];
        let Some(close) = near.iter().position(|b| *b == b')') else { return near.is_empty() };
        let is_number = close > 0 && near[..close].iter().all(u8::is_ascii_digit);
        let is_made = self.bytes[start].is_ascii_uppercase() && self.quote(end + 1).is_some();
        !is_number && !is_made
    }

    /// `&`, `&mut`, `&'a`, `*`.
    fn after_reference(&self, at: usize) -> usize {
        let Some(rest) = self.bytes[at..].strip_prefix(b"&") else { return at };
        if begins(rest, "mut ") {
            return at + 5;
        }
        if rest.first() != Some(&b'\'') {
            return at + 1;
        }
        let lifetime = rest[1..].iter().take(20).take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
        if rest.get(1 + lifetime) == Some(&b' ') { at + 3 + lifetime } else { at }
    }

    /// Where `a.b::c` ends that starts here; here, if none does.
    fn path_end(&self, at: usize) -> usize {
        let rest = &self.bytes[at..self.bytes.len().min(at + FAR)];
        if !rest.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_') {
            return at;
        }
        let is_path = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':');
        let length = rest.iter().take_while(is_path).count();
        let path = &rest[..length];
        // The colon of `a: b` is no part of it.
        let is_odd = path.ends_with(b":")
            || path.ends_with(b".")
            || path.split(|b| *b == b':').nth(1).is_some_and(|p| !p.is_empty());
        if is_odd { at } else { at + length }
    }

    /// Behind `<…>`, if that follows. None if it does not close.
    fn parameters_end(&self, at: usize) -> Option<usize> {
        if !matches!(self.byte(at), Some(b'<' | b'[')) || self.bytes[at..].starts_with(b"[]") {
            return Some(at);
        }
        let mut depth = 0_usize;
        for (i, byte) in self.bytes[at..].iter().take(FAR).enumerate() {
            match byte {
                b'<' | b'[' => depth += 1,
                b'>' | b']' => depth = depth.checked_sub(1)?,
                _ if byte.is_ascii_alphanumeric() || b"_, .:&'|".contains(byte) => {}
                _ => return None,
            }
            if depth == 0 {
                return Some(at + i + 1);
            }
        }
        None
    }
}
