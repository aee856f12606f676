//! Who asks: a key (or the local process), its level and the tools it may use.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::clock;

/// How far a key is trusted. `gate.rs` says what each level means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Reads of our own tools only. `worker` is another word for it.
    #[serde(alias = "worker")]
    Sandboxed,
    /// Reads are free, writes ask.
    Trusted,
    /// Everything is allowed, and recorded.
    Yolo,
}

impl Level {
    pub const ALL: [Level; 3] = [Level::Sandboxed, Level::Trusted, Level::Yolo];

    pub fn as_str(self) -> &'static str {
        match self {
            Level::Sandboxed => "sandboxed",
            Level::Trusted => "trusted",
            Level::Yolo => "yolo",
        }
    }

    pub fn parse(text: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.as_str() == text || (*level == Level::Sandboxed && text == "worker"))
    }
}

/// A principal's name: the key's name, or `local` for the process behind `nexus stdio`.
///
/// A key's id also holds a part of its digest: who gets a key of the same name later does not get the
/// sessions of the earlier one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrincipalId {
    name: Arc<str>,
    stamp: [u8; 8],
}

impl PrincipalId {
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), stamp: [0; 8] }
    }

    /// The id of a key. The first bytes of a digest tell nothing about the key.
    pub fn of_key(name: &str, digest: &[u8; 32]) -> Self {
        let mut stamp = [0; 8];
        stamp.copy_from_slice(&digest[..8]);
        Self { name: name.into(), stamp }
    }

    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// What tells a key from another of the same name.
    pub(crate) fn stamp(&self) -> &[u8; 8] {
        &self.stamp
    }
}

impl fmt::Display for PrincipalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// How a key's calls are gathered into sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionPolicy {
    /// By what the wire offers: the connection or session id where there is one, else a lease.
    #[default]
    Auto,
    /// Always one lease per key, for clients that open a session per call.
    Lease,
}

/// A level that holds until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raised {
    pub level: Level,
    pub until: Timestamp,
}

/// One who may call.
#[derive(Clone, Debug)]
pub struct Principal {
    pub id: PrincipalId,
    pub level: Level,
    /// A level that holds for a time in place of its own.
    pub raised: Option<Raised>,
    /// Tools it sees and may call.
    pub allow: Patterns,
    /// Tools it does not, even when allowed.
    pub deny: Patterns,
    /// Writes its owner has allowed for good.
    pub approved: Patterns,
    pub read_only: bool,
    pub session: SessionPolicy,
    /// An agent's key: the target whose tasks it serves, and nothing else.
    pub serves: Option<Arc<str>>,
}

impl Principal {
    /// A principal that sees every tool.
    pub fn new(name: &str, level: Level) -> Self {
        Self {
            id: PrincipalId::new(name),
            level,
            raised: None,
            allow: Patterns::all(),
            deny: Patterns::default(),
            approved: Patterns::default(),
            read_only: false,
            session: SessionPolicy::Auto,
            serves: None,
        }
    }

    /// The level that holds now. A raised one falls back by itself, to the millisecond.
    pub fn level_now(&self) -> Level {
        match self.raised {
            Some(raised) if clock::now() < raised.until => raised.level,
            _ => self.level,
        }
    }

    /// Whether the tool exists for this principal at all.
    pub fn sees(&self, tool: &str) -> bool {
        self.sees_all() || (self.allow.matches(tool) && !self.deny.matches(tool))
    }

    /// Whether nothing is hidden from it: the common case, which needs no look at the patterns.
    pub fn sees_all(&self) -> bool {
        self.allow.everything && self.deny.globs.is_empty()
    }
}

/// Globs over tool names; `*` stands for any run of characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Patterns {
    globs: Arc<[Box<str>]>,
    everything: bool,
}

#[derive(Debug, Error, PartialEq, Eq)]
#[error("`{0}` is not a tool pattern: letters, digits, `_`, `-`, `.` and `*`")]
pub struct BadPattern(String);

impl Patterns {
    pub fn all() -> Self {
        Self { globs: Arc::from([Box::from("*")]), everything: true }
    }

    pub fn parse(globs: impl IntoIterator<Item = String>) -> Result<Self, BadPattern> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '*');
        let globs: Vec<Box<str>> = globs
            .into_iter()
            .map(|glob| {
                let fits = !glob.is_empty() && glob.len() <= 128 && glob.chars().all(plain);
                if fits { Ok(glob.into_boxed_str()) } else { Err(BadPattern(glob)) }
            })
            .collect::<Result<_, _>>()?;
        let everything = globs.iter().any(|glob| &**glob == "*");
        Ok(Self { globs: globs.into(), everything })
    }

    pub fn matches(&self, name: &str) -> bool {
        self.everything || self.globs.iter().any(|glob| glob_matches(glob.as_bytes(), name.as_bytes()))
    }

    pub fn is_empty(&self) -> bool {
        self.globs.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.globs.iter().map(|glob| &**glob)
    }
}

/// Linear in the name for each star: the last star is the only one worth going back to.
fn glob_matches(glob: &[u8], name: &[u8]) -> bool {
    let (mut g, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match glob.get(g) {
            Some(b'*') => {
                star = Some((g, n));
                g += 1;
            }
            Some(c) if *c == name[n] => {
                g += 1;
                n += 1;
            }
            _ => match star {
                Some((at, eaten)) => {
                    star = Some((at, eaten + 1));
                    g = at + 1;
                    n = eaten + 1;
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_run_of_characters() {
        check("*", "anything", true);
        check("read_*", "read_file", true);
        check("read_*", "write_file", false);
        check("*_file", "read_file", true);
        check("mcp_*_list*", "mcp_github_list_repos", true);
        check("a*b*c", "aXbYbZc", true);
        check("a*b*c", "aXbYbZ", false);
        check("", "x", false);

        #[track_caller]
        fn check(glob: &str, name: &str, expected: bool) {
            assert_eq!(glob_matches(glob.as_bytes(), name.as_bytes()), expected, "{glob} on {name}");
        }
    }

    #[test]
    fn deny_beats_allow() {
        let mut key = Principal::new("k", Level::Trusted);
        key.deny = Patterns::parse(["run_*".to_owned()]).unwrap();
        assert!(key.sees("read_file"));
        assert!(!key.sees("run_command"));
    }

    #[test]
    fn a_pattern_holds_only_what_a_tool_name_may() {
        assert!(Patterns::parse(["mcp_*".to_owned()]).is_ok());
        assert!(Patterns::parse(["a b".to_owned()]).is_err());
        assert!(Patterns::parse([String::new()]).is_err());
    }
}
