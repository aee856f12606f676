//! What a task is, the states it goes through, and the words for them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;
use unicode_normalization::UnicodeNormalization;

/// A task's number in its hub. Written `t17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub i64);

#[derive(Debug, Error, PartialEq, Eq)]
#[error("`{0}` is not the id of a task; one looks like t17")]
pub struct BadTaskId(String);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

impl FromStr for TaskId {
    type Err = BadTaskId;

    fn from_str(text: &str) -> Result<Self, BadTaskId> {
        let digits = text.trim().trim_start_matches(['t', 'T', '#']);
        let number = digits.parse().ok().filter(|number| *number > 0);
        number.map(Self).ok_or_else(|| BadTaskId(text.chars().take(40).collect()))
    }
}

/// Words that stand in the store and on the wire.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$inner:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$inner])* $variant),+ }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }

            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.as_str() == text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// Where a task stands.
    Status {
        /// Nobody has it yet.
        Pending = "pending",
        /// Somebody has it, and has said nothing so far.
        Acknowledged = "acknowledged",
        InProgress = "in_progress",
        /// It waits for an answer to its agent's question.
        InputRequired = "input_required",
        Complete = "complete",
        Error = "error",
        Cancelled = "cancelled",
        /// It was given up: its agent fell silent too often, or its time was over.
        Dead = "dead",
    }
}

words! {
    /// Which of two waiting tasks comes first.
    Priority {
        Low = "low",
        Normal = "normal",
        High = "high",
        Urgent = "urgent",
    }
}

words! {
    /// What an update tells.
    Kind {
        /// Somebody has taken the task.
        Acknowledged = "acknowledged",
        /// What the agent says while it works.
        Progress = "progress",
        /// The agent asks, and waits for `answer_task`.
        Question = "question",
        Answer = "answer",
        Complete = "complete",
        Error = "error",
        Cancelled = "cancelled",
        Dead = "dead",
        /// Something about the task, or about none: it was put back into the queue, say.
        Note = "note",
    }
}

impl Priority {
    pub fn rank(self) -> i64 {
        match self {
            Priority::Low => 0,
            Priority::Normal => 1,
            Priority::High => 2,
            Priority::Urgent => 3,
        }
    }

    pub fn of_rank(rank: i64) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.rank() == rank)
    }
}

/// What can happen to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Somebody takes it.
    Claim,
    /// Its agent says something.
    Say,
    Ask,
    Answer,
    Complete,
    Fail,
    Cancel,
    /// Its agent fell silent, and it may be tried again.
    Requeue,
    /// It is given up.
    GiveUp,
    /// The operator wants it done after all.
    Retry,
}

#[cfg(test)]
impl Act {
    pub const ALL: &'static [Act] = &[
        Act::Claim,
        Act::Say,
        Act::Ask,
        Act::Answer,
        Act::Complete,
        Act::Fail,
        Act::Cancel,
        Act::Requeue,
        Act::GiveUp,
        Act::Retry,
    ];
}

impl Status {
    pub fn is_finished(self) -> bool {
        matches!(self, Status::Complete | Status::Error | Status::Cancelled | Status::Dead)
    }

    /// Somebody works on it, or waits for an answer to go on.
    pub fn is_running(self) -> bool {
        matches!(self, Status::Acknowledged | Status::InProgress | Status::InputRequired)
    }

    /// What becomes of a task that stands so. None: that cannot happen to it, and nothing changes.
    pub fn after(self, act: Act) -> Option<Status> {
        use Status::{Acknowledged, Cancelled, Complete, Dead, Error, InProgress, InputRequired, Pending};
        match (self, act) {
            (Pending, Act::Claim) => Some(Acknowledged),
            (Acknowledged | InProgress, Act::Say) => Some(InProgress),
            // It may say more while it waits.
            (InputRequired, Act::Say) => Some(InputRequired),
            (Acknowledged | InProgress | InputRequired, Act::Ask) => Some(InputRequired),
            (InputRequired, Act::Answer) => Some(InProgress),
            // What was given up and is done after all is done: its agent was only silent.
            (Acknowledged | InProgress | InputRequired | Dead, Act::Complete) => Some(Complete),
            (Acknowledged | InProgress | InputRequired | Dead, Act::Fail) => Some(Error),
            (Pending | Acknowledged | InProgress | InputRequired, Act::Cancel) => Some(Cancelled),
            (Acknowledged | InProgress | InputRequired, Act::Requeue) => Some(Pending),
            (Pending | Acknowledged | InProgress | InputRequired, Act::GiveUp) => Some(Dead),
            (Complete | Error | Cancelled | Dead, Act::Retry) => Some(Pending),
            _ => None,
        }
    }
}

/// A task as it is kept.
#[derive(Clone, Debug)]
pub struct Task {
    pub id: TaskId,
    pub target: Arc<str>,
    pub content: String,
    pub priority: Priority,
    pub status: Status,
    /// The key that sent it.
    pub sender: String,
    pub idempotency_key: Option<String>,
    pub max_attempts: i64,
    /// How often it was claimed.
    pub attempts: i64,
    pub created: Timestamp,
    pub deadline: Option<Timestamp>,
    pub acknowledged: Option<Timestamp>,
    pub started: Option<Timestamp>,
    pub completed: Option<Timestamp>,
    /// The name its claimer gave to the claim. Only whoever has it may report.
    pub claim: Option<String>,
    pub claimed_by: Option<String>,
    pub lease_until: Option<Timestamp>,
    /// The update with the question that waits for an answer.
    pub question: Option<i64>,
    pub result: Option<String>,
    pub exit_code: Option<i64>,
    /// Why it is dead, cancelled or in error.
    pub reason: Option<String>,
}

/// Something that an agent said, or that happened to a task.
#[derive(Clone, Debug)]
pub struct Update {
    /// Grows by one with every update of the hub.
    pub seq: i64,
    pub task: Option<TaskId>,
    pub target: Arc<str>,
    pub kind: Kind,
    pub content: String,
    pub created: Timestamp,
}

/// What makes two messages the same: line ends, outer blanks and ways to write a letter do not, case does.
pub fn content_hash(content: &str) -> [u8; 32] {
    let mut lines = Cow::Borrowed(content.trim());
    if lines.contains('\r') {
        lines = lines.replace("\r\n", "\n").replace('\r', "\n").into();
    }
    // Most messages have no letter that could be written in two ways.
    if lines.is_ascii() {
        return Sha256::digest(lines.as_bytes()).into();
    }
    let mut hash = Sha256::new();
    let mut letter = [0; 4];
    for c in lines.nfc() {
        hash.update(c.encode_utf8(&mut letter).as_bytes());
    }
    hash.finalize().into()
}

/// What a message wants of the work in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// It waits for its turn.
    Ordinary,
    /// `STOP` alone: running work ends, and that is all.
    Stop,
    /// `STOP …` or `URGENT …`: running work ends, and this comes next.
    Interrupt,
}

impl Call {
    pub fn of(content: &str) -> Self {
        let content = content.trim();
        for word in ["STOP", "URGENT"] {
            let Some(rest) = content.strip_prefix(word) else { continue };
            if rest.starts_with(|c: char| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let says_more = rest.contains(char::is_alphanumeric);
            return if word == "STOP" && !says_more { Call::Stop } else { Call::Interrupt };
        }
        Call::Ordinary
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_same_words_are_the_same_task() {
        let same = |a: &str, b: &str| content_hash(a) == content_hash(b);
        assert!(same("a\r\nb", "a\nb"));
        assert!(same("a\rb", "a\nb"));
        assert!(same("  a\n", "a"));
        assert!(same("Caf\u{e9}", "Cafe\u{301}"));
        assert!(!same("a", "A"));
        assert!(!same("a b", "a  b"));
    }

    #[test]
    fn stop_and_urgent_are_words_of_their_own() {
        check("STOP", Call::Stop);
        check(" STOP!\n", Call::Stop);
        check("STOP: and tidy up", Call::Interrupt);
        check("URGENT the disk is full", Call::Interrupt);
        check("URGENT", Call::Interrupt);
        check("STOPPED services", Call::Ordinary);
        check("STOP_ALL", Call::Ordinary);
        check("please STOP", Call::Ordinary);
        check("stop", Call::Ordinary);

        #[track_caller]
        fn check(content: &str, expected: Call) {
            assert_eq!(Call::of(content), expected, "{content}");
        }
    }

    #[test]
    fn ids_are_read_as_they_are_written() {
        assert_eq!("t17".parse(), Ok(TaskId(17)));
        assert_eq!(" #17 ".parse(), Ok(TaskId(17)));
        assert_eq!(TaskId(17).to_string(), "t17");
        for bad in ["", "t", "t0", "t-1", "x17", "t1.5", "t99999999999999999999"] {
            assert!(bad.parse::<TaskId>().is_err(), "{bad}");
        }
    }

    proptest! {
        /// Whatever happens, in whatever order: a finished task comes back only by a retry, or as done after all.
        #[test]
        fn nothing_but_a_retry_opens_what_is_finished(acts in prop::collection::vec(0..Act::ALL.len(), 0..64)) {
            let mut status = Status::Pending;
            for act in acts.into_iter().map(|at| Act::ALL[at]) {
                let Some(next) = status.after(act) else { continue };
                if status.is_finished() && act != Act::Retry {
                    prop_assert_eq!(status, Status::Dead);
                    prop_assert!(matches!(next, Status::Complete | Status::Error));
                }
                if next == Status::Acknowledged {
                    prop_assert_eq!((status, act), (Status::Pending, Act::Claim));
                }
                prop_assert!(next != Status::InputRequired || status.is_running());
                status = next;
            }
        }

        #[test]
        fn every_unfinished_task_can_be_ended(at in 0..Status::ALL.len()) {
            let status = Status::ALL[at];
            prop_assert_eq!(status.after(Act::Cancel).is_some(), !status.is_finished());
            prop_assert_eq!(status.after(Act::GiveUp).is_some(), !status.is_finished());
        }
    }
}
