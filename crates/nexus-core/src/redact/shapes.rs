//! Secrets that are known by their own shape, wherever they stand.

use std::ops::Range;

use super::ahead::Wanted;
use super::names::begins;
use super::scan::{Name, Scan};

/// Prefix of a well-known kind of token, and how many characters must follow for it to be one.
/// `shaped` knows their first letters, and `clue` four of each.
pub(super) const TOKENS: &[(&str, usize)] = &[
    ("ghp_", 30),
    ("gho_", 30),
    ("ghu_", 30),
    ("ghs_", 30),
    ("ghr_", 30),
    ("github_pat_", 30),
    ("glpat-", 16),
    ("sk-ant-", 20),
    ("sk-proj-", 20),
    ("sk_live_", 16),
    ("xoxa-", 20),
    ("xoxb-", 20),
    ("xoxp-", 20),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 35),
    ("tk_", 26),
    ("tskey-", 16),
    ("dckr_pat_", 20),
    ("npm_", 36),
    ("nxk_", 32),
    ("hf_", 30),
    ("xapp-", 20),
    ("glsa_", 32),
    ("shpat_", 32),
    ("pypi-AgE", 40),
];

/// After these, so many letters and digits must follow: names of functions begin like that, too.
const SOLID: &[&str] = &["hf_", "glsa_", "shpat_"];

/// `-----BEGIN ENCRYPTED PRIVATE KEY-----` and its like are shorter.
const LONGEST_LABEL: usize = 80;

/// Characters of a bearer token for it to be one.
const SHORTEST_BEARER: usize = 8;

/// `basic authentication failed` has no secret in it.
const NOT_CREDENTIALS: &[&str] = &["authenticat", "authoriz", "credential", "challenge"];

impl Scan<'_, '_> {
    /// A secret that starts at this byte of a name.
    pub(super) fn shaped(&self, byte: u8, name: &mut Name) -> Option<Range<usize>> {
        match byte {
            b'-' => self.key_block(self.at),
            b'e' => self.jwt(name),
            b'b' | b'B' => self.bearer(),
            b's' => self.known_token(name).or_else(|| self.plain_key(name)),
            b'h' | b'S' => self.known_token(name).or_else(|| self.dotted(name)),
            b'g' | b'x' | b'A' | b't' | b'd' | b'n' | b'p' => self.known_token(name),
            _ => None,
        }
    }

    fn known_token(&self, name: &Name) -> Option<Range<usize>> {
        let run = &self.bytes[self.at..name.end];
        let second = *run.get(1)?;
        let is_token = |(prefix, least): &(&str, usize)| {
            if prefix.as_bytes()[1] != second {
                return false;
            }
            let Some(rest) = run.strip_prefix(prefix.as_bytes()) else { return false };
            let is_solid = || !SOLID.contains(prefix) || rest[..*least].iter().all(u8::is_ascii_alphanumeric);
            (rest.len() >= *least && is_solid()) || self.is_cut_at(name.end)
        };
        TOKENS.iter().any(is_token).then_some(self.at..name.end)
    }

    /// `eyJ….….…`: three parts, or the five of an encrypted one.
    fn jwt(&self, name: &mut Name) -> Option<Range<usize>> {
        let inside = self.at > name.start && self.bytes[self.at - 1].is_ascii_alphanumeric();
        if inside || name.jwt_looked_for || !self.bytes[self.at..].starts_with(b"eyJ") {
            return None;
        }
        name.jwt_looked_for = true;
        let (mut end, mut parts) = (name.end, 1);
        while self.bytes.get(end) == Some(&b'.') {
            let next = self.run_end(end + 1);
            if next == end + 1 && parts == 1 {
                break;
            }
            (end, parts) = (next, parts + 1);
        }
        (parts >= 3 || self.is_cut_at(end)).then_some(self.at..end)
    }

    /// What follows `Bearer` or `Basic`.
    fn bearer(&self) -> Option<Range<usize>> {
        let start = self.after_scheme(self.at)?;
        let is_token = |b: &u8| b.is_ascii_alphanumeric() || b"-_.~+/=".contains(b);
        let run = &self.bytes[start..];
        let run = &run[..run.iter().position(|b| !is_token(b)).unwrap_or(run.len())];
        let end = start + run.len();
        let is_prose =
            || NOT_CREDENTIALS.iter().any(|word| begins(run, word)) && run.iter().all(u8::is_ascii_alphabetic);
        let is_long = run.len() >= SHORTEST_BEARER || (!run.is_empty() && self.is_cut_at(end));
        (is_long && !is_prose()).then_some(start..end)
    }

    /// Where the credentials start, if `Bearer` or `Basic` and a space stand here.
    pub(super) fn after_scheme(&self, at: usize) -> Option<usize> {
        let rest = self.bytes.get(at..)?;
        let scheme = ["bearer", "basic"].into_iter().find(|scheme| begins(rest, scheme))?;
        let end = at + scheme.len();
        Some(self.blanks_end(end)).filter(|start| *start > end)
    }

    /// A private key; other blocks, such as certificates, are no secret.
    pub(super) fn key_block(&self, at: usize) -> Option<Range<usize>> {
        const BEGIN: &[u8] = b"-----BEGIN ";
        let label = self.bytes.get(at..)?.strip_prefix(BEGIN)?;
        let label = &label[..label.len().min(LONGEST_LABEL)];
        let label = &label[..label.windows(5).position(|w| w == b"-----")?];
        let is_label = label.iter().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b' ');
        if !is_label || !label.windows(11).any(|w| w == b"PRIVATE KEY") {
            return None;
        }
        let find = |what: &str, from: usize| self.text[from..].find(what).map(|length| from + length + what.len());
        let body = at + BEGIN.len() + label.len() + 5;
        let end = find("-----END ", body).and_then(|tail| find("-----", tail));
        Some(at..end.unwrap_or(self.text.len()))
    }

    /// `user:password` before the `@`; `start` is where the authority starts.
    ///
    /// A password may hold `/`, `?` or `#`, though it should not: the last `@` of the word ends it. Only digits
    /// between a colon and a slash are taken for a port.
    pub(super) fn url_password(&mut self, start: usize) -> Option<Range<usize>> {
        let end = self.url_end(start);
        let word = &self.bytes[start..end];
        let authority = &word[..word.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(word.len())];
        // The colons of `[::1]:80` are the host's.
        let bracket = if authority.starts_with(b"[") { authority.iter().position(|b| *b == b']') } else { None };
        let host = bracket.unwrap_or(0);
        let colon = host + authority[host..].iter().position(|b| *b == b':')?;
        let is_port = authority.len() < word.len() && authority[colon + 1..].iter().all(u8::is_ascii_digit);
        let at = self.ahead.next(Wanted::At, self.bytes, start + colon);
        if is_port && at >= start + authority.len() {
            return None;
        }
        if at >= end {
            return (self.is_cut_at(end) && colon + 1 < word.len()).then_some(start..end);
        }
        let last = self.bytes[at..end].iter().rposition(|b| *b == b'@')?;
        Some(start..at + last)
    }

    /// A URL ends with its word, or with the quote before its scheme.
    fn url_end(&mut self, start: usize) -> usize {
        let scheme = &self.bytes[self.floor..start - 3];
        let is_scheme = |b: &u8| b.is_ascii_alphanumeric() || b"+.-".contains(b);
        let before = scheme.iter().rev().take(32).find(|b| !is_scheme(b));
        let closer = match before {
            Some(b'"') => Some(Wanted::DoubleQuote),
            Some(b'\'') => Some(Wanted::SingleQuote),
            Some(b'`') => Some(Wanted::Backtick),
            Some(b'<') => Some(Wanted::Greater),
            _ => None,
        };
        let blank = self.ahead.next(Wanted::Blank, self.bytes, start);
        closer.map_or(blank, |closer| blank.min(self.ahead.next(closer, self.bytes, start)))
    }
}
