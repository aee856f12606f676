//! Arguments that several tools about tasks share, checked where they come in.

use std::time::Duration;

use nexus_core::prelude::*;
use nexus_core::{redact, text};

use crate::agents::task::{BadTaskId, TaskId};

/// Bytes of a message, a result, a question or an answer.
pub const LONGEST: usize = 100_000;
/// Characters of a name that a caller chooses.
const LONGEST_NAME: usize = 200;
/// What clients and proxies wait for without giving up.
const LONGEST_WAIT: u64 = 60;

#[derive(Debug, Error)]
pub enum BadWords {
    #[error("it is empty")]
    Empty,
    #[error(
        "it has {0} bytes, and at most {LONGEST} fit: put long material into a file that the reader can reach, and name it"
    )]
    TooLong(usize),
    #[error("it holds a NUL character")]
    Nul,
}

/// Words for somebody who needs them as they are: a message, an answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct Words(String);

impl TryFrom<String> for Words {
    type Error = BadWords;

    fn try_from(words: String) -> Result<Self, BadWords> {
        let kept = words.trim();
        match kept.len() {
            0 => Err(BadWords::Empty),
            // The store of some hubs cannot keep it.
            _ if kept.contains('\0') => Err(BadWords::Nul),
            long if long > LONGEST => Err(BadWords::TooLong(long)),
            all if all == words.len() => Ok(Self(words)),
            _ => Ok(Self(kept.to_owned())),
        }
    }
}

impl Words {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

/// What an agent says. It is kept for long and read by many: without escapes, and without secrets.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct Said(String);

impl TryFrom<String> for Said {
    type Error = BadWords;

    fn try_from(said: String) -> Result<Self, BadWords> {
        let kept = said.trim_end();
        match kept.len() {
            0 => Err(BadWords::Empty),
            long if long > LONGEST => Err(BadWords::TooLong(long)),
            // Cleaned first: an escape sequence within a secret must not hide it.
            _ => Ok(Self(redact::text(&text::clean(kept)).into_owned())),
        }
    }
}

impl Said {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

/// A name that a caller chooses: of a claim, of something said, of a message.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct Chosen(String);

#[derive(Debug, Error)]
#[error("a name is 1 to {LONGEST_NAME} printable characters")]
pub struct BadName;

impl TryFrom<String> for Chosen {
    type Error = BadName;

    fn try_from(name: String) -> Result<Self, BadName> {
        let plain = !name.trim().is_empty() && !name.contains(char::is_control);
        if plain && name.chars().nth(LONGEST_NAME).is_none() { Ok(Self(name)) } else { Err(BadName) }
    }
}

impl Chosen {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

/// The id of a task.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct Id(pub TaskId);

impl TryFrom<String> for Id {
    type Error = BadTaskId;

    fn try_from(id: String) -> Result<Self, BadTaskId> {
        id.parse().map(Self)
    }
}

/// How long a call may wait for something to happen.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(try_from = "u64")]
#[schemars(with = "u64")]
pub struct Wait(u64);

#[derive(Debug, Error)]
#[error("a call waits 0 to {LONGEST_WAIT} seconds; call again to wait longer")]
pub struct BadWait;

impl TryFrom<u64> for Wait {
    type Error = BadWait;

    fn try_from(seconds: u64) -> Result<Self, BadWait> {
        if seconds <= LONGEST_WAIT { Ok(Self(seconds)) } else { Err(BadWait) }
    }
}

impl Wait {
    pub fn time(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_as_they_are_but_for_the_blanks_around_them() {
        let words = |text: &str| Words::try_from(text.to_owned()).map(Words::into_string);
        assert_eq!(words("  password=hunter2hunter2 \n").unwrap(), "password=hunter2hunter2");
        assert!(matches!(words(" \n\t "), Err(BadWords::Empty)));
        assert!(matches!(words("a\0b"), Err(BadWords::Nul)));
        assert!(words(&"x".repeat(LONGEST)).is_ok());
        assert!(matches!(words(&"ä".repeat(LONGEST / 2 + 1)), Err(BadWords::TooLong(100_002))));
    }

    #[test]
    fn what_is_said_keeps_its_shape_and_loses_escapes_and_secrets() {
        let said = |text: &str| Said::try_from(text.to_owned()).map(Said::into_string);
        assert_eq!(said("  indented\n    more\n\n").unwrap(), "  indented\n    more");
        assert_eq!(said("\u{1b}[31mred\u{1b}[0m\0").unwrap(), "red");
        assert_eq!(said("pass\u{1b}[0mword=hunter2").unwrap(), "password=[redacted]");
        assert!(matches!(said("\n\n"), Err(BadWords::Empty)));
        assert!(matches!(said(&"x".repeat(LONGEST + 1)), Err(BadWords::TooLong(_))));
    }

    #[test]
    fn names_are_short_and_printable() {
        for good in ["a", "w:0192-ab:17", "ünï cödé", &"x".repeat(LONGEST_NAME)] {
            assert!(Chosen::try_from(good.to_owned()).is_ok(), "{good}");
        }
        for bad in ["", "  ", "a\nb", "a\0b", &"x".repeat(LONGEST_NAME + 1)] {
            assert!(Chosen::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
