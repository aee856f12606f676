//! What can go wrong with another server, by whose fault it is.

use std::io;
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;

/// An upstream server could not be used.
#[derive(Debug, Error)]
pub enum UpstreamError {
    /// Its entry is at fault: it is switched off, or says neither what to start nor where to connect.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// Nothing could be carried to it or from it.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// It answered, and not as the protocol says or not with a yes.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConfigurationError {
    #[error("the server `{0}` is switched off in its entry (`enabled: false`)")]
    Disabled(String),
    #[error("the entry of the server `{0}` names neither a command nor a url")]
    Nowhere(String),
    #[error("no server `{0}` is configured")]
    Unknown(String),
    /// It comes from a project folder and nobody has agreed to it yet.
    #[error("the server `{name}` comes from {file} and waits for the operator's yes")]
    Unagreed { name: String, file: String },
    #[error("the server `{0}` is connected for everybody; disconnect it first")]
    Shared(String),
    #[error("the server `{0}` is connected privately by another key")]
    Private(String),
    /// No permissions, or too few of them.
    #[error("{who} may not use upstream servers")]
    Denied { who: String },
    #[error("{0}")]
    Fault(String),
}

/// Cloneable: everybody who waits on a connection that breaks is told the same.
#[derive(Clone, Debug, Error)]
pub enum TransportError {
    #[error("`{program}` could not be started: {reason}")]
    NotStarted { program: String, reason: String },
    /// Ended, hung up, broken off.
    #[error("the connection is closed: {0}")]
    Closed(String),
    #[error("a message is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("{url} may not be called: {reason}")]
    Forbidden { url: String, reason: String },
    #[error("{url} answered HTTP {status}{}", behind(body))]
    Http { url: String, status: u16, body: String },
    /// 401 or 403; `challenge` is its WWW-Authenticate.
    #[error("{url} wants to know who asks (HTTP {status})")]
    Unauthorized { url: String, status: u16, challenge: Option<String> },
    /// A login was tried, and did not come about.
    #[error("{url} wants a login: {reason}")]
    Login { url: String, reason: String },
    /// 404 to a session id: the server has forgotten the session.
    #[error("the server no longer knows this session")]
    SessionLost,
    #[error("{url} does not answer: {reason}")]
    Unreachable { url: String, reason: String },
    #[error("{0}")]
    Io(String),
}

/// What a server said with its status, if anything.
pub(super) fn behind(said: &str) -> String {
    if said.trim().is_empty() { String::new() } else { format!(": {said}") }
}

impl From<io::Error> for TransportError {
    fn from(error: io::Error) -> Self {
        Self::Io(error.to_string())
    }
}

#[derive(Clone, Debug, Error)]
pub enum ProtocolError {
    /// A JSON-RPC error in answer to a request.
    #[error("the server answered with an error: {message} ({code})")]
    Rpc { code: i64, message: String, data: Option<Value> },
    #[error("the server's answer makes no sense: {0}")]
    Nonsense(String),
    #[error("the server sent {0} unrelated messages instead of an answer")]
    Flooded(usize),
    #[error("the server did not answer within {} s", .0.as_secs_f32())]
    Late(Duration),
    #[error("the server lists more than {limit} {what}")]
    TooMany { what: &'static str, limit: usize },
    #[error("the server speaks none of our protocol versions, only {0}")]
    Version(String),
    #[error("the call was cancelled")]
    Cancelled,
    /// It wants something of us before it answers, and nobody here gives it.
    #[error("the server asks for `{method}`, and got no answer: {why}")]
    Unanswered { method: String, why: String },
}

/// Whether a request that failed may have been carried out all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It never left: trying again is safe.
    NotSent,
    /// It left, and no answer came: look before trying again.
    MayHaveHappened,
    /// The server answered it.
    Answered,
}

/// A request that got no result.
#[derive(Debug, Error)]
#[error("{error}")]
pub struct RequestError {
    /// Not its source: what it says is all that is to be said.
    pub error: UpstreamError,
    pub delivery: Delivery,
}
