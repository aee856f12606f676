//! What a request is made of, and who hears what its server says meanwhile.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Changed, refused};
use crate::wire::{RpcError, quoted};

/// Hears what a server says and asks outside of any request. Everything may be left out: then nothing is heard, and
/// what is asked is refused.
///
/// All but [`asked`](Host::asked) are called from the task that reads the connection and must come back at once.
pub trait Host: Send + Sync {
    /// A list of the server is no longer what it was.
    fn changed(&self, what: Changed) {
        let _ = what;
    }

    /// A resource that was subscribed to has changed.
    fn updated(&self, uri: &str) {
        let _ = uri;
    }

    /// The parameters of `notifications/message`, as the server wrote them.
    fn logged(&self, params: &RawValue) {
        let _ = params;
    }

    /// `elicitation/create`, `sampling/createMessage`, `roots/list`. Gives the result.
    fn asked<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, RpcError>> {
        let _ = params;
        refused(method)
    }
}

/// Hears what a server says and asks about one request. As with [`Host`], only [`asked`](Listener::asked) may wait.
pub trait Listener: Send + Sync {
    /// The parameters of `notifications/progress`. Their token is this client's own.
    fn progress(&self, params: &RawValue) {
        let _ = params;
    }

    fn logged(&self, params: &RawValue) {
        let _ = params;
    }

    fn asked<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, RpcError>> {
        let _ = params;
        refused(method)
    }

    /// When it was last busy with a question of the server: now, if it still is. A server that waits for an answer is
    /// not late with its own.
    fn last_asking(&self) -> Option<Instant> {
        None
    }

    /// For whom the request is made. On a shared stream a question cannot be told to belong to one request; while all
    /// requests under way are for the same one, it is theirs all the same.
    fn session(&self) -> Option<Uuid> {
        None
    }
}

/// A [`Host`] that hears nothing and answers nothing.
#[derive(Clone, Copy, Debug)]
pub struct Nobody;

impl Host for Nobody {}

/// A request.
#[derive(Clone)]
pub struct Ask<'a> {
    pub method: &'static str,
    /// The fields of its parameters as JSON text: no braces around them, no `_meta` among them. May be empty.
    pub fields: String,
    /// The tool, prompt or resource it is about: HTTP repeats it in a header.
    pub name: Option<String>,
    /// Arguments that HTTP repeats in headers (`Mcp-Param-…`).
    pub headers: Vec<(String, String)>,
    /// New era: what the client can do for this request, a JSON object. None: what the options say.
    pub capabilities: Option<&'a str>,
    /// New era: the least severity of log messages that are wanted. None: no log messages.
    pub log_level: Option<&'a str>,
    /// More fields of `_meta` as JSON text, such as `"traceparent":"…"`. May be empty.
    pub meta: &'a str,
    pub listener: Option<Arc<dyn Listener>>,
    /// None: what the options say.
    pub timeout: Option<Duration>,
}

impl<'a> Ask<'a> {
    pub fn new(method: &'static str) -> Self {
        Self {
            method,
            fields: String::new(),
            name: None,
            headers: Vec::new(),
            capabilities: None,
            log_level: None,
            meta: "",
            listener: None,
            timeout: None,
        }
    }

    /// `tools/call`; `arguments` is a JSON object.
    pub fn tool(name: &str, arguments: &str) -> Self {
        Self::new("tools/call").about(name).with(format!(r#""name":{},"arguments":{arguments}"#, quoted(name)))
    }

    /// `resources/read` and the like.
    pub fn about_uri(method: &'static str, uri: &str) -> Self {
        Self::new(method).about(uri).with(format!(r#""uri":{}"#, quoted(uri)))
    }

    #[must_use]
    pub fn with(mut self, fields: String) -> Self {
        self.fields = fields;
        self
    }

    #[must_use]
    pub fn about(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    #[must_use]
    pub fn listened_by(mut self, listener: Arc<dyn Listener>) -> Self {
        self.listener = Some(listener);
        self
    }

    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Whether progress is wanted: always where there is a listener, and for tools, whose time limit it restarts.
    pub(super) fn wants_progress(&self) -> bool {
        self.listener.is_some() || self.method == "tools/call"
    }
}

/// Without the arguments, which may be secret.
impl fmt::Debug for Ask<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask").field("method", &self.method).field("name", &self.name).finish_non_exhaustive()
    }
}
