//! What is recorded of everything that happens, and where it goes.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use thiserror::Error;
use uuid::Uuid;

use crate::call::CallCx;
use crate::clock;
use crate::principal::PrincipalId;
use crate::provider::Origin;
use crate::redact;
use crate::session::{Era, Transport};
use crate::text;
use crate::tool::Access;

/// Takes rows and keeps them.
pub trait Sink: Send + Sync {
    /// Takes a row that will be written soon. Never waits: it is called from `Drop` too.
    fn post(&self, row: Row);

    /// Comes back when the row cannot be lost any more.
    fn durable(&self, row: Row) -> BoxFuture<'_, Result<(), NotRecorded>>;

    /// Takes a row that outlives this process from now on; a power cut within the next moments may still take it.
    fn noted(&self, row: Row) -> Result<(), NotRecorded> {
        self.post(row);
        Ok(())
    }

    /// Something to wait for when too many posted rows are unwritten; `None` almost always.
    fn backlog(&self) -> Option<BoxFuture<'_, ()>>;
}

#[derive(Clone, Debug, Error)]
#[error("the audit could not record it: {0}")]
pub struct NotRecorded(pub String);

/// One thing that happened.
#[derive(Clone, Debug)]
pub struct Row {
    pub id: Uuid,
    pub at: Timestamp,
    pub event: Event,
    pub session: Option<Uuid>,
    pub principal: Option<PrincipalId>,
    pub transport: Option<Transport>,
    pub era: Option<Era>,
    /// What the client calls itself.
    pub client: Option<String>,
    pub call: Option<CallRow>,
    /// Anything else worth a line: an address, a reason. Redacted by whoever writes it.
    pub detail: Option<String>,
}

/// What kind of row it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write is about to run; its end is another row with the same call id.
    Begun,
    /// A call ended, one way or another.
    Call,
    SessionStarted,
    SessionEnded,
    /// A human allowed a session's writes, or one waiting call.
    Approved,
    /// A human said no to a waiting call, or took an approval back.
    Denied,
    KeyRefused,
    KeyMade,
    KeyRevoked,
    /// A key's level was changed, raised for a time, or fell back.
    KeyLevel,
    /// The hub runs with another configuration than last time.
    ConfigChanged,
    /// Rows were taken away from the old end; this one vouches for them.
    Pruned,
    /// The hub runs with tools whose output is not redacted.
    Unredacted,
    /// The hub itself asked another server for something.
    Outbound,
    /// An upstream server was connected, lost, agreed to or switched, or tools of it were allowed.
    Upstream,
    /// The hub itself ended a task, or put it back into its queue: its agent fell silent, or its time was over.
    Task,
    /// A computer linked, was replaced by another of its name, or went.
    Link,
    HubStarted,
    HubStopped,
}

impl Event {
    pub fn as_str(self) -> &'static str {
        match self {
            Event::Begun => "begun",
            Event::Call => "call",
            Event::SessionStarted => "session_started",
            Event::SessionEnded => "session_ended",
            Event::Approved => "approved",
            Event::Denied => "denied",
            Event::KeyRefused => "key_refused",
            Event::KeyMade => "key_made",
            Event::KeyRevoked => "key_revoked",
            Event::KeyLevel => "key_level",
            Event::ConfigChanged => "config_changed",
            Event::Pruned => "pruned",
            Event::Unredacted => "unredacted",
            Event::Outbound => "outbound",
            Event::Upstream => "upstream",
            Event::Task => "task",
            Event::Link => "link",
            Event::HubStarted => "hub_started",
            Event::HubStopped => "hub_stopped",
        }
    }
}

/// The part of a row that only calls have.
#[derive(Clone, Debug)]
pub struct CallRow {
    pub id: Uuid,
    pub tool: Arc<str>,
    pub origin: Option<Origin>,
    pub access: Option<Access>,
    pub node: Option<String>,
    pub summary: Option<String>,
    /// The arguments with everything secret taken out, as bounded JSON.
    pub arguments: Arc<str>,
    /// SHA-256 over all of them.
    pub digest: [u8; 32],
    /// `allowed`, `asked`, `refused`, and why or how.
    pub decision: Option<&'static str>,
    pub how: Option<&'static str>,
    /// `ok`, `error`, `refused`, `failed`, `internal`, `cancelled`, `abandoned`, `waiting`, `unknown_tool`.
    pub outcome: Option<&'static str>,
    pub duration_us: Option<u64>,
}

impl Row {
    /// Bytes it takes while it waits to be written, roughly.
    pub fn size(&self) -> usize {
        let texts = [self.client.as_deref(), self.detail.as_deref()].into_iter().flatten().map(str::len).sum::<usize>();
        let call =
            self.call.as_ref().map_or(0, |call| call.arguments.len() + call.summary.as_ref().map_or(0, String::len));
        size_of::<Self>() + texts + call
    }
}

impl Row {
    pub fn new(event: Event) -> Self {
        Self {
            id: clock::new_id(),
            at: clock::now(),
            event,
            session: None,
            principal: None,
            transport: None,
            era: None,
            client: None,
            call: None,
            detail: None,
        }
    }

    /// A row about a call, or about its session.
    pub fn about(event: Event, cx: &CallCx) -> Self {
        Self {
            session: Some(cx.session.id),
            principal: Some(cx.principal.id.clone()),
            transport: Some(cx.session.transport),
            era: Some(cx.era),
            client: cx.client_name.as_deref().map(str::to_owned),
            ..Self::new(event)
        }
    }

    #[must_use]
    pub fn detail(mut self, detail: impl fmt::Display) -> Self {
        let words = detail.to_string();
        self.detail = Some(match text::cut(&words, 500) {
            cut if cut.len() == words.len() => redact::text(&words).into_owned(),
            cut => redact::beginning(&cut).into_owned(),
        });
        self
    }
}

/// Forgets everything. For `nexus docs` and tests of other things.
#[derive(Debug)]
pub struct Nowhere;

impl Sink for Nowhere {
    fn post(&self, _: Row) {}

    fn durable(&self, _: Row) -> BoxFuture<'_, Result<(), NotRecorded>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn backlog(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }
}
