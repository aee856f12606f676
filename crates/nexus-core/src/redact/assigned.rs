//! Secrets that something before them announces: a name, an option, a command.

use std::ops::Range;

use super::ahead::Wanted;
use super::fields::is_stored_login;
use super::names::{Reach, begins, counts};
use super::scan::{Command, Name, Scan};

/// With these and another word after them, `token: expected a string` is a sentence.
const SENTENCE_STARTS: &[&str] = &[
    "access",
    "are",
    "bad",
    "cannot",
    "could",
    "denied",
    "did",
    "does",
    "empty",
    "error",
    "expected",
    "expired",
    "failed",
    "has",
    "invalid",
    "is",
    "missing",
    "must",
    "no",
    "not",
    "only",
    "permission",
    "required",
    "should",
    "too",
    "unable",
    "unexpected",
    "unknown",
    "was",
    "wrong",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Separator {
    Equals,
    Colon,
}

impl Scan<'_, '_> {
    /// The value after a telling name: `PGPASSWORD=…`, `--token=…`, `--password …`, `"secret": "…"`,
    /// `\"secret\":\"…\"`, `X-Api-Key: …`, `Cookie: …`, `user[password]=…`.
    pub(super) fn assigned(&self, name: Name, reach: Reach) -> Option<Range<usize>> {
        let quote = self.quote(name.end);
        let mut at = quote.map_or(name.end, |quote| quote.inside);
        if self.byte(at) == Some(b']') {
            at += 1;
        }
        let Some((separator, after)) = self.separator(self.blanks_end(at)) else {
            let option = self.option_value(name).or_else(|| self.netrc(name));
            return option.or_else(|| self.paired(name)).or_else(|| self.tagged(name));
        };
        let gap = after;
        let mut at = self.blanks_end(after);
        if quote.is_some() {
            at += self.bytes[at..].iter().take_while(|b| b.is_ascii_whitespace()).count();
        }
        let plain_colon = separator == Separator::Colon && quote.is_none();
        if plain_colon && (self.in_path() || self.is_sentence(at) || (reach == Reach::Shy && self.is_prose(name))) {
            return None;
        }
        if quote.is_none() && self.quote(at).is_none() && self.is_source(name, separator, gap, at) {
            return None;
        }
        if separator == Separator::Colon
            && let Some(block) = self.block(at, name)
        {
            return block;
        }
        let whole_line = reach == Reach::Line || (name.starts_line && self.quote(at).is_none());
        let value = match self.byte(at)? {
            b'[' | b'{' if separator == Separator::Colon && !(plain_colon && whole_line) => self.bracketed(at),
            _ if plain_colon && whole_line => at..self.line_end(at, name.start),
            _ if quote.is_some() && self.quote(at).is_none() => at..self.literal_end(at),
            _ if separator == Separator::Equals && quote.is_none() => match self.enclosing_end(at, name.start) {
                Some(end) => at..end,
                None => self.value(at),
            },
            _ => self.value(at),
        };
        if self.is_count(name, &value) || self.is_switch(&value) || self.is_setting(name, &value) {
            return None;
        }
        self.without_scheme(value)
    }

    /// `=`, `:`, `=>`, `:=`, `+=`; not the colons of `secret::Key` and `secret://`.
    fn separator(&self, at: usize) -> Option<(Separator, usize)> {
        let rest = self.bytes.get(at..)?;
        match rest {
            [b':', b':', ..] | [b':', b'/', b'/', ..] => None,
            [b':', b'=', ..] | [b'+' | b'?', b'=', ..] | [b'=', b'>' | b'~', ..] => Some((Separator::Equals, at + 2)),
            [b'=', ..] => Some((Separator::Equals, at + rest.iter().take_while(|b| **b == b'=').count())),
            [b':', ..] => Some((Separator::Colon, at + 1)),
            _ => None,
        }
    }

    /// Where a number or the like ends that is a field's value in JSON, or the word.
    fn literal_end(&self, at: usize) -> usize {
        let rest = &self.bytes[at..];
        let length = rest.iter().take(40).take_while(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b)).count();
        let ends = rest.get(length).is_none_or(|b| b.is_ascii_whitespace() || b",}]".contains(b));
        if length > 0 && ends { at + length } else { self.word_end(at) }
    }

    /// `"token": null`, `secret: true`.
    fn is_switch(&self, value: &Range<usize>) -> bool {
        let value = &self.bytes[value.clone()];
        ["true", "false", "null", "none", "yes", "no"].iter().any(|word| value.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// `max_tokens: 4096` is no secret.
    fn is_count(&self, name: Name, value: &Range<usize>) -> bool {
        let is_number = |b: &u8| b.is_ascii_digit() || matches!(b, b'.' | b',' | b'_' | b'k' | b'M');
        value.len() <= 12 && self.bytes[value.clone()].iter().all(is_number) && counts(&self.text[name.start..name.end])
    }

    /// `[…]` and `{…}` after a colon, and what hangs on it.
    fn bracketed(&self, at: usize) -> Range<usize> {
        let end = self.bracket_end(at);
        let ends = |b: u8| b.is_ascii_whitespace() || b",;)]}&\"'`\\".contains(&b);
        at..if self.byte(end).is_none_or(ends) { end } else { self.word_end(end) }
    }

    /// `Bearer` and `Basic` stay readable; what follows them is the secret.
    fn without_scheme(&self, value: Range<usize>) -> Option<Range<usize>> {
        let Some(start) = self.after_scheme(value.start) else {
            return Some(value).filter(|value| !value.is_empty());
        };
        // The scheme was the whole word: the next one is the secret.
        let end = if start > value.end { self.word_end(start) } else { value.end };
        let value = if start < end { start..end } else { value };
        Some(value).filter(|value| !value.is_empty())
    }

    fn option_value(&self, name: Name) -> Option<Range<usize>> {
        let at = self.gap(name.end).filter(|_| self.bytes[name.start] == b'-')?;
        if self.byte(at) == Some(b'-') { None } else { self.some_value(at) }
    }

    /// From an option to its value: `-u x`, `-u=x`, `"-u", "x"`.
    pub(super) fn gap(&self, at: usize) -> Option<usize> {
        if let Some(quote) = self.quote(at) {
            let comma = usize::from(self.byte(quote.inside) == Some(b','));
            let next = self.blanks_end(quote.inside + comma);
            return self.quote(next).map(|_| next);
        }
        let next = if self.byte(at) == Some(b'=') { at + 1 } else { self.blanks_end(at) };
        (next > at).then_some(next)
    }

    /// The password of `me:pw`. `1000:1000` is a user and a group, unless curl is told.
    pub(super) fn login(&mut self, at: usize) -> Option<Range<usize>> {
        let quote = self.quote(at);
        let user = quote.map_or(at, |quote| quote.inside);
        let colon = self.ahead.next(Wanted::LoginEnd, self.bytes, user);
        if self.byte(colon) != Some(b':') || self.bytes[colon..].starts_with(b"://") {
            return None;
        }
        let start = colon + 1;
        let end = match quote.map(|_| self.value(at)) {
            // More than what is quoted: the quotes go, too.
            Some(value) if value.start == at => return Some(value),
            Some(value) => value.end,
            None => self.word_end(start),
        };
        let digits = |range: Range<usize>| self.bytes[range].iter().all(u8::is_ascii_digit);
        let is_group = self.command != Some(Command::Curl) && digits(user..colon) && digits(start..end.max(start));
        (end > start && !is_group).then_some(start..end)
    }

    /// A short option and its value in one word, as the commands take them: `mysql -ppw`, `curl -ume:pw`.
    pub(super) fn attached(&mut self) -> Option<Range<usize>> {
        let value = self.at + 2;
        let option = self.bytes.get(self.at..value)?;
        if self.byte(value).is_none_or(|b| b.is_ascii_whitespace() || b == b'=') || self.is_spared(self.at) {
            return None;
        }
        match (self.command?, option) {
            (Command::Curl, b"-u") => self.login(value),
            (Command::MySql | Command::Login, b"-p") | (Command::Redis, b"-a") => self.some_value(value),
            (Command::SshPass, b"-p") => {
                self.command = None;
                self.some_value(value)
            }
            _ => None,
        }
    }

    /// A comparison, a type, a call, another variable: `after` is where the separator ends.
    fn is_source(&self, name: Name, separator: Separator, after: usize, at: usize) -> bool {
        match separator {
            Separator::Colon => self.is_type(at) || (at > after && self.is_call(at)),
            Separator::Equals => {
                let compares = self.bytes[name.end..after].ends_with(b"==");
                let spaced = at > after && self.byte(name.end) == Some(b' ');
                compares || (at <= self.bytes.len() && self.is_code(at, spaced))
            }
        }
    }

    /// `--- PASS: TestX`, `the first pass: …`, `invalid credentials: …`.
    fn is_prose(&self, name: Name) -> bool {
        let told = &self.text[name.start..name.end];
        let is_part = told.contains('_') || told.bytes().any(|b| b.is_ascii_uppercase()) && told != "PASS";
        let is_openssl = self.follows(name, &["-pass", "-passin", "-passout"]);
        !(is_openssl || (is_part && told.len() > 4) || (name.starts_line && told != "PASS"))
    }

    /// Whether one of these words and blanks stand right before the name.
    pub(super) fn follows(&self, name: Name, words: &[&str]) -> bool {
        let before = &self.bytes[self.floor..name.start];
        let trimmed = before.trim_ascii_end();
        trimmed.len() < before.len() && words.iter().any(|word| trimmed.ends_with(word.as_bytes()))
    }

    /// `pwd=/home/me`, `-passin file:x`, `credentials: 'include'`: no secrets.
    fn is_setting(&self, name: Name, value: &Range<usize>) -> bool {
        let told = &self.bytes[name.start..name.end];
        let value = &self.bytes[value.clone()];
        (told == b"pwd" && value.starts_with(b"/"))
            || (begins(told, "credentials") && [&b"include"[..], b"omit", b"same-origin"].contains(&value))
    }

    /// `machine host login me password hunter2`, on one line or on three.
    fn netrc(&self, name: Name) -> Option<Range<usize>> {
        const FAR: usize = 256;
        if &self.bytes[name.start..name.end] != b"password" || !self.byte(name.end)?.is_ascii_whitespace() {
            return None;
        }
        let before = &self.bytes[self.floor.max(name.start.saturating_sub(FAR))..name.start];
        let mut words = before.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).rev().skip(1);
        let is_entry = words.next()? == b"login" && (words.next()? == b"default" || words.next()? == b"machine");
        let at = self.blanks_end(name.end);
        is_entry.then(|| self.some_value(at)).flatten()
    }

    /// `"auth": "bWU6cHc="` in the configuration of Docker.
    pub(super) fn stored_login(&self, name: Name) -> Option<Range<usize>> {
        let (separator, after) = self.separator(self.blanks_end(self.quote(name.end)?.inside))?;
        let at = self.blanks_end(after);
        let quote = self.quote(at).filter(|_| separator == Separator::Colon)?;
        let near = &self.text[quote.inside..];
        let length = near.bytes().take(2_000).take_while(|b| b.is_ascii_alphanumeric() || b"+/=".contains(b)).count();
        is_stored_login(&near[..length]).then_some(quote.inside..quote.inside + length)
    }

    fn is_sentence(&self, at: usize) -> bool {
        let rest = &self.bytes[at..];
        let length = rest.iter().take(16).take_while(|b| b.is_ascii_alphabetic()).count();
        let starts = SENTENCE_STARTS.iter().any(|word| rest[..length].eq_ignore_ascii_case(word.as_bytes()));
        let next = self.blanks_end(at + length);
        starts && next > at + length && self.byte(next).is_some_and(|b| b.is_ascii_alphanumeric() || b == b'`')
    }
}
