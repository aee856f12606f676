//! What went wrong, told to whom it concerns: the caller, or the operator's log.

use std::error::Error;
use std::fmt::{self, Display, Write};

use serde_json::json;
use tracing::error;
use uuid::Uuid;

use crate::clock;
use crate::redact;
use crate::reply::Reply;
use crate::text;

pub type ToolResult<T> = Result<T, ToolError>;

type Source = Box<dyn Error + Send + Sync>;

/// An error with a reader. The constructors are the three readers; there is no other way to make one.
#[derive(Debug)]
pub struct ToolError {
    kind: Kind,
    source: Source,
    hint: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Refused,
    Failed,
    Internal,
}

impl ToolError {
    /// The caller can mend it: a bad argument, a forbidden path, a limit.
    pub fn refused(source: impl Into<Source>) -> Self {
        Self { kind: Kind::Refused, source: source.into(), hint: None }
    }

    /// The world said no: a dead host, a missing file. The caller should be told.
    pub fn failed(source: impl Into<Source>) -> Self {
        Self { kind: Kind::Failed, source: source.into(), hint: None }
    }

    /// Ours. The caller gets an incident number, the log gets everything.
    pub fn internal(source: impl Into<Source>) -> Self {
        Self { kind: Kind::Internal, source: source.into(), hint: None }
    }

    /// What to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The word the audit and the reply use for it.
    pub fn kind(&self) -> &'static str {
        match self.kind {
            Kind::Refused => "refused",
            Kind::Failed => "failed",
            Kind::Internal => "internal",
        }
    }

    /// What the model reads. An internal error is logged here, once, under the number the reply names.
    pub fn into_reply(self) -> Reply {
        let kind = self.kind();
        let (message, hint) = match self.kind {
            Kind::Refused | Kind::Failed => (self.to_string(), self.hint.map(|hint| shown(&hint))),
            Kind::Internal => {
                let incident = clock::new_id();
                error!(%incident, "internal error: {self}");
                (format!("internal error, incident {incident}"), Some(INTERNAL_HINT.to_owned()))
            }
        };
        let mut shown = message.clone();
        if let Some(hint) = &hint {
            let _ = write!(shown, "\nhint: {hint}");
        }
        let body = json!({ "error": { "kind": kind, "message": message, "hint": hint } });
        Reply::error(shown, &body)
    }

    /// The reply for a panic, whose text goes to the log only.
    pub fn panicked(tool: &str, panic: &str) -> (Uuid, Reply) {
        let incident = clock::new_id();
        error!(%incident, tool, "the tool `{tool}` panicked: {}", shown(&panic));
        let message = format!("internal error, incident {incident}");
        let body = json!({ "error": { "kind": "internal", "message": message, "hint": INTERNAL_HINT } });
        (incident, Reply::error(format!("{message}\nhint: {INTERNAL_HINT}"), &body))
    }
}

const INTERNAL_HINT: &str = "this is a fault of the hub; its log has the details under that number";

impl Display for ToolError {
    /// The chain, cut, cleaned and redacted: this is what leaves the program.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&Chain(&*self.source)))
    }
}

/// Characters of an error's text. It may echo megabytes of what the caller sent, and nobody reads them.
const LONGEST: usize = 2_000;

/// Cleaned first: an escape sequence within a secret must not hide it from the redaction.
fn shown(error: &dyn Display) -> String {
    let mut start = Start { text: String::new(), left: LONGEST };
    let whole = write!(start, "{error}");
    let cleaned = text::clean(&start.text);
    match whole {
        Ok(()) => redact::text(&cleaned).into_owned(),
        Err(fmt::Error) => format!("{}…", redact::beginning(&cleaned)),
    }
}

/// Takes so many characters, then no more.
struct Start {
    text: String,
    left: usize,
}

impl Write for Start {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let fits = more.char_indices().nth(self.left).map_or(more.len(), |(at, _)| at);
        self.text.push_str(&more[..fits]);
        self.left -= more[..fits].chars().count();
        if fits < more.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Prints an error and what caused it: `reading /x: permission denied`.
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("reading {path}")]
    struct Reading {
        path: &'static str,
        source: io::Error,
    }

    fn reading() -> Reading {
        Reading { path: "/x", source: io::Error::other("no luck") }
    }

    #[test]
    fn a_failure_tells_its_chain_and_what_to_do() {
        let reply = ToolError::failed(reading()).hint("try /y").into_reply();
        assert!(reply.is_error());
        assert_eq!(reply.text(), "reading /x: no luck\nhint: try /y");
    }

    #[test]
    fn a_long_error_is_cut_and_a_secret_at_the_cut_is_not_spared() {
        check("y".repeat(4 << 20), |shown| assert!(shown.ends_with("yyy…")));
        check(format!("{} https://me:hunter2hunter2@host", "ä".repeat(LONGEST - 18)), |_| {});
        check(format!("{} Bearer hunter2hunter2", "x".repeat(LONGEST - 14)), |_| {});
        check("password=hunter2 ".repeat(100_000), |_| {});

        #[track_caller]
        fn check(text: String, more: fn(&str)) {
            let shown = ToolError::failed(text).into_reply().text().to_owned();
            assert!(shown.chars().count() <= 2 * LONGEST && shown.ends_with('…'), "{shown}");
            assert!(!shown.contains("hunt"), "{shown}");
            more(&shown);
        }
    }

    #[test]
    fn an_escape_sequence_does_not_hide_a_secret() {
        let error = ToolError::failed("pass\u{1b}[0mword=hunter2");
        assert_eq!(error.to_string(), "password=[redacted]");
    }

    #[test]
    fn what_a_panic_says_is_cut_and_redacted_too() {
        let logged = shown(&format!("password=hunter2 {}", "x".repeat(1 << 20)));
        assert!(logged.starts_with("password=[redacted] xxx") && logged.len() < 2 * LONGEST);
    }

    #[test]
    fn an_internal_error_keeps_its_cause_to_itself() {
        let reply = ToolError::internal(reading()).into_reply();
        assert!(reply.text().starts_with("internal error, incident "));
        assert!(!reply.text().contains("/x"));
    }
}
