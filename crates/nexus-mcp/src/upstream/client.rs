//! One connection to an MCP server: the handshake of either era, requests and what comes between them, within limits.
//!
//! A [`Client`] speaks over whatever a [`Connector`] opens. Its server is not trusted: ids must match, messages that
//! nobody asked for are counted, lists and texts are bounded, and every wait has an end.
//!
//! ```
//! use std::sync::Arc;
//! use nexus_core::tasks::Tasks;
//! use nexus_mcp::upstream::client::{Client, Options};
//! use nexus_mcp::upstream::error::UpstreamError;
//! use nexus_mcp::upstream::transport::Connector;
//! use serde_json::json;
//!
//! async fn greet(connector: Arc<dyn Connector>) -> Result<String, UpstreamError> {
//!     let client = Client::connect(connector, Options::new(Tasks::new())).await?;
//!     let greeting = client.call_tool("echo", &json!({ "message": "hello" })).await.map_err(|failed| failed.error)?;
//!     client.close().await;
//!     Ok(greeting.text())
//! }
//! ```

mod ask;
mod call;
mod desk;
mod few;
mod handshake;
mod line;
mod list;
mod listen;
mod outcome;
mod question;
mod said;
mod server;
#[cfg(test)]
mod tests;
mod waiting;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use nexus_core::session::Era;
use nexus_core::tasks::Tasks;

use self::line::Line;
use self::listen::Subscriptions;
use super::config::{DEFAULT_TIMEOUT, EraChoice};
use super::error::{RequestError, TransportError, UpstreamError};
use super::transport::Connector;
use crate::wire::RpcError;

pub use self::ask::{Ask, Host, Listener, Nobody};
pub use self::call::CallResult;
pub use self::list::Listed;
pub use self::server::{Changed, ServerInfo};

/// How to speak with a server.
#[derive(Clone)]
pub struct Options {
    pub era: EraChoice,
    /// What the server spoke last time. With [`EraChoice::Auto`] that is tried first.
    pub remembered: Option<Era>,
    /// Without an answer or progress for so long, a request has failed.
    pub timeout: Duration,
    /// What this client can do: said once in the old era, and with each request that does not say otherwise in the new.
    pub capabilities: Value,
    /// Hears what the server says outside of any request.
    pub host: Arc<dyn Host>,
    pub tasks: Tasks,
    /// What this client calls itself.
    pub name: String,
    pub version: String,
}

impl Options {
    /// The new era where it is offered, thirty seconds for a request, and nobody to be asked.
    pub fn new(tasks: Tasks) -> Self {
        Self {
            era: EraChoice::Auto,
            remembered: None,
            timeout: DEFAULT_TIMEOUT,
            capabilities: json!({}),
            host: Arc::new(Nobody),
            tasks,
            name: "nexus".into(),
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("era", &self.era).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// A server that is connected. Cloning is cheap; when the last clone goes, so does the connection, at once.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    line: Arc<Line>,
    server: ServerInfo,
    subscriptions: Subscriptions,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Background tasks hold the line too; this is what ends them.
        self.line.desk.shut();
    }
}

impl Client {
    /// Opens a connection and agrees on an era. Gives up after a minute with a program that is being started (`npx`
    /// may have to download it first), after the time of one request with an address.
    pub async fn connect(connector: Arc<dyn Connector>, options: Options) -> Result<Self, UpstreamError> {
        let (line, server) = handshake::connect(&*connector, &options).await?;
        let subscriptions = Subscriptions::start(&line, &server, &options.tasks);
        Ok(Self { inner: Arc::new(Inner { line, server, subscriptions }) })
    }

    /// What the server said of itself.
    pub fn server(&self) -> &ServerInfo {
        &self.inner.server
    }

    /// Sends a request and waits for its result. Dropping the future cancels the request.
    pub async fn request(&self, ask: Ask<'_>) -> Result<Box<RawValue>, RequestError> {
        self.inner.line.request(ask).await
    }

    /// Sends a notification; `params` is a JSON object.
    pub async fn notify(&self, method: &'static str, params: &str) -> Result<(), TransportError> {
        self.inner.line.notify(method, params).await
    }

    /// All of a kind that the server has, page by page: not more than is sensible, each as the server wrote it.
    pub async fn list(&self, what: Listed) -> Result<Vec<Box<RawValue>>, RequestError> {
        list::all(&self.inner.line, what).await
    }

    /// Calls a tool. What the server asks meanwhile goes to the [`Host`].
    pub async fn call_tool(&self, name: &str, arguments: &Value) -> Result<CallResult, RequestError> {
        self.call(Ask::tool(name, &arguments.to_string())).await
    }

    /// Sends a request (`tools/call`, `prompts/get`, `resources/read`) and, in the new era, goes through its rounds of
    /// questions, which are put to its listener or else to the [`Host`].
    pub async fn call(&self, ask: Ask<'_>) -> Result<CallResult, RequestError> {
        call::through_rounds(&self.inner.line, ask).await
    }

    /// Whether the server still answers: `ping` in the old era, `server/discover` in the new.
    pub async fn ping(&self) -> Result<(), RequestError> {
        let method = match self.inner.server.era {
            Era::Legacy => "ping",
            Era::Modern => "server/discover",
        };
        self.request(Ask::new(method)).await.map(drop)
    }

    /// Wants to hear of changes of a resource ([`Host::updated`]).
    pub async fn subscribe(&self, uri: &str) -> Result<(), RequestError> {
        match self.inner.server.era {
            Era::Legacy => self.request(Ask::about_uri("resources/subscribe", uri)).await.map(drop),
            Era::Modern => self.inner.subscriptions.add(uri),
        }
    }

    /// No longer wants to.
    pub async fn unsubscribe(&self, uri: &str) -> Result<(), RequestError> {
        match self.inner.server.era {
            Era::Legacy => self.request(Ask::about_uri("resources/unsubscribe", uri)).await.map(drop),
            Era::Modern => {
                self.inner.subscriptions.remove(uri);
                Ok(())
            }
        }
    }

    /// False once the connection is lost or closed.
    pub fn is_connected(&self) -> bool {
        self.inner.line.desk.why_closed().is_none()
    }

    /// Comes back when the connection is lost or closed, and says why.
    pub async fn closed(&self) -> TransportError {
        self.inner.line.desk.closed().await
    }

    /// Ends the connection in order, and comes back when nothing of it is left. Requests under way fail.
    pub async fn close(&self) {
        self.inner.line.desk.shut();
        self.inner.line.transport.close().await;
    }

    /// The process behind it, where there is one.
    pub fn pid(&self) -> Option<u32> {
        self.inner.line.transport.pid()
    }

    /// How many requests wait for an answer.
    pub fn in_flight(&self) -> usize {
        self.inner.line.desk.in_flight()
    }
}

/// For [`Host`] and [`Listener`]: nobody here answers that.
fn refused(method: &str) -> BoxFuture<'static, Result<Box<RawValue>, RpcError>> {
    let error = RpcError::method_not_found(method);
    Box::pin(async move { Err(error) })
}
