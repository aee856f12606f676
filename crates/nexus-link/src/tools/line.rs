//! A computer in one line of a reply. All of it is from the registry: what a computer answers is not repeated.

use std::fmt::Write;
use std::sync::Arc;

use nexus_core::prelude::*;

use crate::registry::Seen;
use crate::round::Outcome;

/// Bytes of a line, about: room is made once for all of them.
pub const LINE: usize = 64;

/// A linked computer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Named {
    id: u64,
    label: Option<Arc<str>>,
    /// The world that it says it is in.
    world: Option<Arc<str>>,
    /// Another one has the same number, so the line tells the world.
    #[serde(skip)]
    clashes: bool,
}

impl Named {
    /// All of them, in their order: by number, then by world.
    pub fn all(seen: &[Seen]) -> Vec<Self> {
        let id = |at: usize| seen.get(at).map(|seen| seen.computer.address.id);
        let named = |(at, seen): (usize, &Seen)| {
            let computer = &seen.computer;
            let own = Some(computer.address.id);
            let before = at.checked_sub(1).and_then(id);
            Self {
                id: computer.address.id,
                label: computer.label.clone(),
                world: computer.address.world.clone(),
                clashes: before == own || id(at + 1) == own,
            }
        };
        seen.iter().enumerate().map(named).collect()
    }

    /// `12 (Label: base-turtle)`.
    pub fn write(&self, line: &mut String) {
        let or_null = |name: &Option<Arc<str>>, line: &mut String| line.push_str(name.as_deref().unwrap_or("null"));
        let _ = write!(line, "{} (Label: ", self.id);
        or_null(&self.label, line);
        if self.clashes {
            line.push_str(", World: ");
            or_null(&self.world, line);
        }
        line.push(')');
    }
}

/// Why there is no answer, in a word of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It said that it cannot or will not.
    Refused,
    /// It hung up.
    Gone,
    /// Another connection said to be the same computer.
    Replaced,
    /// `stop_computers` came between.
    Stopped,
    /// Too many questions wait for it already.
    Busy,
    /// Its answer was too large.
    TooLarge,
}

/// What came of a question.
#[derive(Debug)]
pub enum Came {
    Answer,
    Timeout,
    Error(Reason),
}

impl Came {
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Answer(_) => Came::Answer,
            Outcome::Silent => Came::Timeout,
            Outcome::Refused(_) => Came::Error(Reason::Refused),
            Outcome::Gone => Came::Error(Reason::Gone),
            Outcome::Replaced => Came::Error(Reason::Replaced),
            Outcome::Stopped => Came::Error(Reason::Stopped),
            Outcome::Busy => Came::Error(Reason::Busy),
            Outcome::TooLarge => Came::Error(Reason::TooLarge),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn named(id: u64, label: Option<&str>, world: Option<&str>, clashes: bool) -> Named {
        Named { id, label: label.map(Into::into), world: world.map(Into::into), clashes }
    }

    #[test]
    fn a_line_names_the_world_only_where_numbers_clash() {
        check(&named(12, Some("base-turtle"), Some("survival"), false), "12 (Label: base-turtle)");
        check(&named(12, Some("base-turtle"), Some("survival"), true), "12 (Label: base-turtle, World: survival)");
        check(&named(12, None, None, true), "12 (Label: null, World: null)");
        check(&named(0, None, None, false), "0 (Label: null)");
        check(&named(u64::MAX, None, None, false), "18446744073709551615 (Label: null)");

        #[track_caller]
        fn check(named: &Named, expected: &str) {
            let mut line = String::new();
            named.write(&mut line);
            assert_eq!(line, expected);
        }
    }
}
