//! How messages reach a server. Three kinds are here; others can be added by implementing [`Connector`].

#[cfg(test)]
mod bench;
mod events;
pub mod http;
pub mod memory;
mod oversized;
mod peer;
pub mod sse;
pub mod stdio;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::error::TransportError;
use nexus_core::session::Era;

/// Opens transports to one server, as often as it takes.
pub trait Connector: fmt::Debug + Send + Sync {
    /// Connects. What arrives goes to `inbox` from then on, also while this has not come back yet.
    fn open(&self, inbox: Arc<dyn Inbox>) -> BoxFuture<'_, Result<Arc<dyn Transport>, TransportError>>;

    /// In a few words for people: the command, or the address without secrets.
    fn describe(&self) -> String;

    /// Whether the two ends share one stream of messages (stdio, SSE): then it cannot be told from the wire to which
    /// request a notification or a question belongs.
    fn is_shared_stream(&self) -> bool;
}

/// A way to a server that is open.
pub trait Transport: fmt::Debug + Send + Sync {
    /// Hands a message over. Comes back when it is on its way; an answer arrives at the inbox. An error means that it
    /// did not leave.
    fn send(&self, message: Outgoing) -> BoxFuture<'_, Result<(), TransportError>>;

    /// Nobody waits for the answer to this request any more; what is held for it may go.
    fn abandon(&self, request: u64) {
        let _ = request;
    }

    /// The handshake is done: this is what was agreed. HTTP opens its stream of notifications then (old era).
    fn agreed(&self, era: Era, version: &str) {
        let _ = (era, version);
    }

    /// The process behind it, where there is one.
    fn pid(&self) -> Option<u32> {
        None
    }

    /// Closes it in order: end of input, SIGTERM, SIGKILL of the group; or the end of the session. Comes back when
    /// nothing of it is left. Dropping the last handle closes it too, at once.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// One message on its way out.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// One JSON-RPC message, without line ends.
    pub text: String,
    /// Of a request.
    pub id: Option<u64>,
    pub method: Cow<'static, str>,
    /// The tool, prompt or resource it is about: HTTP repeats it in a header.
    pub name: Option<String>,
    /// Arguments that HTTP repeats in headers (`Mcp-Param-…`), and nothing else.
    pub headers: Vec<(String, String)>,
}

/// Where arriving messages go. Never waits: a transport calls it from its reading task.
///
/// The reading task holds it for as long as the transport is open, so it must not hold the transport in turn (a `Weak`
/// may): what nobody uses any more would never be closed.
pub trait Inbox: Send + Sync {
    /// One JSON-RPC message. `within` is the request on whose own stream it came, where there is one.
    fn arrived(&self, message: Vec<u8>, within: Option<u64>);

    /// That request will get no answer.
    fn failed(&self, request: u64, error: TransportError);

    /// A message could not be taken (larger than allowed), and whose answer it was cannot be told: whoever waits, waits
    /// in vain perhaps.
    fn lost(&self, error: TransportError) {
        self.closed(error);
    }

    /// Nothing will ever come again.
    fn closed(&self, error: TransportError);
}
