//! Secrets with a shape of more than one run of letters: tokens with dots and colons in them, and hashes.

use std::ops::Range;

use super::scan::{Name, Scan};

/// What a password's hash begins with, after the `$`.
const HASHES: &[&str] =
    &["1$", "5$", "6$", "7$", "y$", "gy$", "2a$", "2b$", "2y$", "apr1$", "argon2i$", "argon2d$", "argon2id$"];
/// Characters of the last part of a password's hash for it to be one.
const SHORTEST_HASH: usize = 20;
/// Characters after the number of a Telegram bot.
const TELEGRAM: usize = 35;

impl Scan<'_, '_> {
    /// `SG.….…` of SendGrid, `hvs.…` of Vault.
    pub(super) fn dotted(&self, name: &Name) -> Option<Range<usize>> {
        let rest = &self.bytes[self.at..];
        if self.at != name.start || !(rest.starts_with(b"SG.") || rest.starts_with(b"hvs.")) {
            return None;
        }
        let start = name.end + 1;
        let end = self.run_end(start);
        let is_long = |range: Range<usize>, least: usize| range.len() >= least || self.is_cut_at(range.end);
        if rest[0] == b'h' {
            return is_long(start..end, 20).then_some(self.at..end);
        }
        if !is_long(start..end, 16) || (self.byte(end) != Some(b'.') && !self.is_cut_at(end)) {
            return None;
        }
        let (start, end) = (end, self.run_end(self.bytes.len().min(end + 1)));
        is_long(start..end, 30).then_some(self.at..end)
    }

    /// `sk-…` of OpenAI: at least 20 characters, with 16 letters and digits in a row.
    pub(super) fn plain_key(&self, name: &Name) -> Option<Range<usize>> {
        let key = self.bytes[self.at..name.end].strip_prefix(b"sk-").filter(|_| self.at == name.start)?;
        let is_random = |part: &[u8]| part.len() >= 16 && part.iter().any(u8::is_ascii_digit);
        let is_key = key.len() >= 20 && key.split(|b| matches!(b, b'-' | b'_')).any(is_random);
        (is_key || (self.is_cut_at(name.end) && !key.is_empty())).then_some(self.at..name.end)
    }

    /// What follows a name that is the first part of a secret: the number of a Telegram bot, the address of a Slack
    /// webhook.
    pub(super) fn second_part(&self, name: Name) -> Option<Range<usize>> {
        let start = name.end + 1;
        match self.byte(name.end)? {
            b':' if self.bytes[start..].starts_with(b"AA") => {
                let told = &self.bytes[name.start..name.end];
                let digits = told.iter().rev().take_while(|b| b.is_ascii_digit()).count();
                let end = self.run_end(start);
                let is_token = end - start == TELEGRAM || (end - start < TELEGRAM && self.is_cut_at(end));
                ((8..=10).contains(&digits) && is_token).then_some(start..end)
            }
            b'/' if self.bytes[self.floor..name.end].ends_with(b"hooks.slack.com/services") => {
                let is_part = |b: &u8| b.is_ascii_alphanumeric() || *b == b'/';
                let length = self.bytes[start..].iter().take_while(|b| is_part(b)).count();
                (length >= 20 || (length > 0 && self.is_cut_at(start + length))).then_some(start..start + length)
            }
            _ => None,
        }
    }

    /// The hash of a password: `$6$…`, `$y$…`, `$2b$…`, `$argon2id$…`, also with the `$$` of a compose file.
    pub(super) fn hash(&self) -> Option<Range<usize>> {
        let rest = &self.bytes[self.at..];
        let rest = rest.strip_prefix(b"$$").or_else(|| rest.strip_prefix(b"$"))?;
        if !HASHES.iter().any(|kind| rest.starts_with(kind.as_bytes())) {
            return None;
        }
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || b"./$=,+".contains(b);
        let length = self.bytes[self.at..].iter().take(400).take_while(|b| is_part(b)).count();
        let end = self.at + length;
        let parts = self.bytes[self.at..end].split(|b| *b == b'$').filter(|part| !part.is_empty());
        let last = parts.clone().next_back().map_or(0, <[u8]>::len);
        let is_hash = parts.count() >= 3 && last >= SHORTEST_HASH;
        (is_hash || self.is_cut_at(end)).then_some(self.at..end)
    }
}
