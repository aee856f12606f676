//! Paths as a model gives them, what they mean on this machine, and how people are shown them.

use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};

use nexus_core::text::one_line;
use nexus_core::{ToolError, ToolResult};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Bytes; `PATH_MAX` of Linux.
const LONGEST: usize = 4096;

/// A path from a call's arguments: not empty, no NUL, not longer than the system takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct GivenPath(String);

#[derive(Debug, Error, PartialEq, Eq)]
pub enum BadPath {
    #[error("the path is empty")]
    Empty,
    #[error("the path holds a NUL")]
    Nul,
    #[error("the path is longer than {LONGEST} bytes")]
    Long,
}

#[derive(Debug, Error)]
#[error("the hub knows no home folder for `~`")]
struct NoHome;

#[derive(Debug, Error)]
#[error("{path} has no place: the hub's working folder is gone")]
struct NoPlace {
    path: GivenPath,
    source: io::Error,
}

impl TryFrom<String> for GivenPath {
    type Error = BadPath;

    fn try_from(path: String) -> Result<Self, BadPath> {
        match path {
            path if path.is_empty() => Err(BadPath::Empty),
            path if path.contains('\0') => Err(BadPath::Nul),
            path if path.len() > LONGEST => Err(BadPath::Long),
            path => Ok(Self(path)),
        }
    }
}

impl GivenPath {
    /// It ends the way only a folder's name can.
    pub fn is_a_folders(&self) -> bool {
        matches!(self.0.rsplit('/').next(), Some("" | "." | ".."))
    }

    /// From `/`: `~` is the home folder, anything else relative to the hub's working folder. Links and `..` stay.
    pub fn absolute(&self, home: Option<&Path>) -> ToolResult<PathBuf> {
        let from_home = match self.0.strip_prefix('~') {
            Some("") => Some(""),
            Some(rest) => rest.strip_prefix('/'),
            None => None,
        };
        match from_home {
            Some(rest) => {
                let home = home.ok_or_else(|| ToolError::refused(NoHome).hint("give the path from /"))?;
                Ok(home.join(rest.trim_start_matches('/')))
            }
            None => std::path::absolute(&self.0).map_err(|source| {
                ToolError::failed(NoPlace { path: self.clone(), source }).hint("give the path from /")
            }),
        }
    }
}

impl fmt::Display for GivenPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.0))
    }
}

/// The path with `.`, `..` and double slashes worked out by their letters alone.
pub fn lexical(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::Normal(name) => out.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(path: &str) -> GivenPath {
        GivenPath::try_from(path.to_owned()).unwrap()
    }

    #[test]
    fn paths_are_parsed_at_the_edge() {
        assert_eq!(GivenPath::try_from(String::new()), Err(BadPath::Empty));
        assert_eq!(GivenPath::try_from("a\0b".to_owned()), Err(BadPath::Nul));
        assert_eq!(GivenPath::try_from("x".repeat(5000)), Err(BadPath::Long));
    }

    #[test]
    fn a_tilde_is_the_home_folder_and_nothing_else() {
        let home = Path::new("/home/me");
        check("~", "/home/me");
        check("~/a", "/home/me/a");
        check("~//etc", "/home/me/etc");
        check("/a/~", "/a/~");
        assert!(given("~x").absolute(Some(home)).unwrap().ends_with("~x"));
        assert!(given("~/a").absolute(None).is_err());

        #[track_caller]
        fn check(path: &str, expected: &str) {
            assert_eq!(given(path).absolute(Some(Path::new("/home/me"))).unwrap(), Path::new(expected));
        }
    }

    #[test]
    fn dots_are_worked_out_by_their_letters() {
        check("/etc/../etc//./shadow", "/etc/shadow");
        check("/../../etc/shadow/", "/etc/shadow");
        check("/a/b/../../..", "/");

        #[track_caller]
        fn check(path: &str, expected: &str) {
            assert_eq!(lexical(Path::new(path)), Path::new(expected));
        }
    }
}
