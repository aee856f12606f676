//! What single settings may hold: text is parsed into these types once, here.

pub mod measure;
pub mod net;
pub mod remote;

use std::fmt::{self, Display};
use std::num::{NonZeroU16, NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use nexus_core::name::NodeName;
use nexus_core::principal::{Level, Patterns, SessionPolicy};
use serde::{Serialize, Serializer};

use super::faults::{Faults, Problem, did_you_mean};
use super::section::{Setting, Shape, Value};
use super::tree::Node;

/// Declares a choice of words.
macro_rules! words {
    ($(#[$about:meta])+ $name:ident { $($variant:ident = $word:literal,)+ }) => {
        $(#[$about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
        pub enum $name { $( #[serde(rename = $word)] $variant, )+ }

        impl $crate::config::section::Value for $name {
            fn kind() -> String {
                $crate::config::values::one_of(&[$($word),+])
            }

            fn parse(text: &str) -> Result<Self, $crate::config::faults::Problem> {
                match text {
                    $( $word => Ok(Self::$variant), )+
                    _ => Err($crate::config::values::not_a_word(text, &[$($word),+])),
                }
            }
        }
    };
}

/// Declares a piece of text that holds to a rule.
macro_rules! text {
    ($(#[$about:meta])+ $name:ident, $kind:literal, $rule:expr) => {
        $(#[$about])+
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
        pub struct $name(String);

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl $crate::config::section::Value for $name {
            fn kind() -> String {
                $kind.to_owned()
            }

            fn parse(text: &str) -> Result<Self, $crate::config::faults::Problem> {
                let rule: fn(&str) -> bool = $rule;
                if !rule(text) {
                    return Err($crate::config::faults::Problem::not(text, $kind));
                }
                Ok(Self(text.to_owned()))
            }
        }
    };
}
pub(super) use text;

words! {
    /// How much is logged.
    LogLevel { Off = "off", Error = "error", Warn = "warn", Info = "info", Debug = "debug", Trace = "trace", }
}

words! {
    /// Which eras of MCP are spoken.
    Protocol { Dual = "dual", Legacy = "legacy", Modern = "modern", }
}

words! {
    /// Who says yes to a write.
    ApprovalMode { Ask = "ask", Chat = "chat", Operator = "operator", }
}

text! {
    /// The name of a key, as in the audit record.
    KeyName, "a name of 1 to 64 characters out of `a-z`, `0-9`, `_` and `-`",
    |text| (1..=64).contains(&text.len())
        && text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'_' | b'-'))
}

text! {
    /// The name of an agent's queue, like `homelab` or `nexus:felt`.
    TargetName, "a target's name of 1 to 64 letters, digits, `.`, `_`, `-` and `:`",
    |text| (1..=64).contains(&text.len())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-' | b':'))
}

text! {
    /// A label of a Loki stream.
    LabelName, "a label name (letters, digits and `_`, not starting with a digit)",
    |text| !text.is_empty() && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

text! {
    /// The name of an environment variable.
    EnvName, "the name of an environment variable",
    |text| !text.is_empty() && !text.contains(|c: char| c == '=' || c.is_control() || c.is_whitespace())
}

text! {
    /// Any text that is not empty and stays on its line.
    Text, "text",
    |text| !text.trim().is_empty() && !text.contains(char::is_control)
}

text! {
    /// One glob over tool names.
    ToolGlob, "a tool pattern: letters, digits, `_`, `-`, `.` and `*`",
    |text| Patterns::parse([text.to_owned()]).is_ok()
}

/// Globs over tool names, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolPatterns(pub Patterns);

impl Setting for ToolPatterns {
    fn shape() -> Shape {
        Vec::<ToolGlob>::shape()
    }

    fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        let globs = Vec::<ToolGlob>::read(node, faults)?;
        Patterns::parse(globs.into_iter().map(|glob| glob.0)).ok().map(Self)
    }

    fn absent() -> Option<Self> {
        Some(Self::default())
    }
}

impl Serialize for ToolPatterns {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter())
    }
}

/// A path as written. [`FilePath::resolve`] makes it absolute; nothing else may be opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FilePath(PathBuf);

impl FilePath {
    /// `~/` is the home folder, anything else that is not absolute starts at `base`.
    pub fn resolve(&mut self, base: &Path, home: Option<&Path>) {
        self.0 = match (self.0.strip_prefix("~"), home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => base.join(&self.0),
        };
    }
}

impl AsRef<Path> for FilePath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Value for FilePath {
    fn kind() -> String {
        "a path".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        Text::parse(text).map(|Text(text)| Self(text.into())).map_err(|_| Problem::not(text, "a path"))
    }
}

/// A program that is started by its full path, whatever `PATH` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Program(PathBuf);

impl AsRef<Path> for Program {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Value for Program {
    fn kind() -> String {
        "an absolute path".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        match FilePath::parse(text)? {
            FilePath(path) if path.is_absolute() => Ok(Self(path)),
            _ => Err(Problem::not(text, "an absolute path").hint("/bin/sh")),
        }
    }
}

/// The SHA-256 of a key. Not printed when it is wrong: it may be the key itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sha256(pub [u8; 32]);

impl Value for Sha256 {
    fn kind() -> String {
        "64 hexadecimal digits".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        let wrong = || {
            let length = text.chars().count();
            Problem::new(format!("a SHA-256 is 64 hexadecimal digits; these are {length} characters"))
                .hint("printf %s \"$KEY\" | sha256sum")
        };
        let text = text.as_bytes();
        let digit = |c: u8| char::from(c).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        if text.len() != 64 || text.iter().any(|c| digit(*c).is_none()) {
            return Err(if text.len() == 64 { wrong().note("not hexadecimal") } else { wrong() });
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0]).unwrap_or_default() << 4 | digit(pair[1]).unwrap_or_default();
        }
        Ok(Self(bytes))
    }
}

impl Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Sha256 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The moment from which a key is no longer good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry(pub Timestamp);

impl Serialize for Expiry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl Value for Expiry {
    fn kind() -> String {
        "a date or an RFC 3339 time".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        let wrong = || Problem::not(text, "a date or an RFC 3339 time").hint("2027-01-31 or 2027-01-31T18:00:00Z");
        if let Ok(date) = text.parse::<Date>().and_then(Date::tomorrow)
            && text.len() == "2027-01-31".len()
        {
            return date.to_zoned(TimeZone::UTC).map(|end| Self(end.timestamp())).map_err(|_| wrong());
        }
        text.parse().map(Self).map_err(|_| wrong())
    }
}

impl Value for bool {
    fn kind() -> String {
        "`true` or `false`".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        text.parse().map_err(|_| Problem::not(text, Self::kind()))
    }
}

macro_rules! numbers {
    ($($type:ty, $kind:literal;)+) => {$(
        impl Value for $type {
            fn kind() -> String {
                $kind.to_owned()
            }

            fn parse(text: &str) -> Result<Self, Problem> {
                text.parse().map_err(|_| Problem::not(text, $kind))
            }
        }
    )+};
}

numbers! {
    u16, "a port (0 to 65535)";
    NonZeroU16, "a port (1 to 65535)";
    NonZeroU32, "a whole number above 0";
    NonZeroUsize, "a whole number above 0";
    i64, "a whole number";
}

impl Value for Level {
    fn kind() -> String {
        one_of(&Level::ALL.map(Level::as_str))
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        Level::parse(text).ok_or_else(|| not_a_word(text, &Level::ALL.map(Level::as_str)))
    }
}

impl Value for SessionPolicy {
    fn kind() -> String {
        one_of(&["auto", "lease"])
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        match text {
            "auto" => Ok(Self::Auto),
            "lease" => Ok(Self::Lease),
            _ => Err(not_a_word(text, &["auto", "lease"])),
        }
    }
}

impl Value for NodeName {
    fn kind() -> String {
        "a node's name".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        let rule = "letters, digits, `.`, `_` and `-`, not starting with `-`";
        NodeName::try_from(text.to_owned()).map_err(|_| Problem::not(text, "a node's name").hint(rule))
    }
}

fn one_of(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" | ")
}

fn not_a_word(text: &str, words: &[&str]) -> Problem {
    Problem::not(text, format_args!("one of {}", one_of(words))).maybe_hint(did_you_mean(text, words.iter().copied()))
}
