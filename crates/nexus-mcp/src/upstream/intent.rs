//! A call to a server, from its permit to its result.

mod failure;

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use thiserror::Error;

use nexus_core::arguments::Arguments;
use nexus_core::call::{CallCx, CallKey};
use nexus_core::clock;
use nexus_core::error::{ToolError, ToolResult};
use nexus_core::gate::Permit;
use nexus_core::name::{NodeName, ToolName};
use nexus_core::provider::Intent;
use nexus_core::reply::Reply;
use nexus_core::session::Era;
use nexus_core::tool::{Access, NotCovered};

use super::client::{Ask, CallResult, Client};
use super::introduction;
use super::offers::subscription::Subscriptions;
use super::relay::Relay;
use super::relay::question::passed_on;
use super::relay::result::{Asked, BadResult, Came, Kind, Recipient, read, ready};
use super::relay::state::{Bound, LIFE_MS, States};
use super::supervisor::{OfferedTool, Unavailable, Upstream};
use crate::exchange::{Exchange, LOG_LEVELS};

/// What is wanted of a server.
#[derive(Clone, Debug)]
pub(crate) enum Errand {
    Tool(Arc<OfferedTool>),
    Prompt,
    Read,
    Complete,
    /// To be told when it changes; the URI is the server's own.
    Follow(String),
}

impl Errand {
    fn method(&self) -> &'static str {
        match self {
            Errand::Tool(_) => "tools/call",
            Errand::Prompt => "prompts/get",
            Errand::Read => "resources/read",
            Errand::Complete => "completion/complete",
            Errand::Follow(_) => "resources/subscribe",
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Errand::Tool(_) => Kind::Tool,
            Errand::Prompt => Kind::Prompt,
            Errand::Read => Kind::Resource,
            Errand::Complete | Errand::Follow(_) => Kind::Other,
        }
    }
}

/// A call of a server whose arguments are valid.
pub(crate) struct UpstreamCall {
    pub(crate) upstream: Upstream,
    pub(crate) states: Arc<States>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    pub(crate) errand: Errand,
    /// The tool by our name, and the arguments as they came.
    pub(crate) tool: ToolName,
    pub(crate) args: Arguments,
    /// The fields of the request's parameters.
    pub(crate) fields: String,
    /// The server's own name for what it is about: HTTP repeats it in a header.
    pub(crate) about: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) summary: String,
}

#[derive(Debug, Error)]
#[error("the caller no longer wants it; the server `{0}` was told so")]
struct Cancelled(String);

impl Intent for UpstreamCall {
    /// What a server says of its tools is not believed: each may write.
    fn access(&self) -> Access {
        match self.errand {
            Errand::Tool(_) => Access::Write,
            Errand::Prompt | Errand::Read | Errand::Complete | Errand::Follow(_) => Access::ReadLogged,
        }
    }

    fn summary(&self) -> String {
        self.summary.clone()
    }

    fn tells_arguments(&self) -> bool {
        matches!(self.errand, Errand::Tool(_))
    }

    fn node(&self) -> Option<&NodeName> {
        None
    }

    fn introduction(&self) -> Option<String> {
        Some(introduction::of(&self.upstream))
    }

    fn run(self: Box<Self>, permit: Permit, cx: CallCx) -> BoxFuture<'static, ToolResult<Reply>> {
        async move {
            if !permit.covers(self.access()) {
                return Err(ToolError::internal(NotCovered(self.access())));
            }
            let cancelled = cx.cancel.clone();
            // Dropping the request is what tells the server.
            tokio::select! {
                biased;
                done = self.go(&cx) => done,
                () = cancelled.cancelled() => Err(ToolError::failed(Cancelled(self.upstream.name().to_string()))),
            }
        }
        .boxed()
    }
}

impl UpstreamCall {
    async fn go(&self, cx: &CallCx) -> ToolResult<Reply> {
        let client = self.client(cx).await.map_err(failure::unavailable)?;
        let exchange = Exchange::behind(cx);
        if let Errand::Follow(uri) = &self.errand {
            return self.follow(uri, &client, exchange.as_deref()).await;
        }
        let server_era = client.server().era;
        // In the old era they are said once for all callers.
        let asked = exchange.as_deref().filter(|_| server_era == Era::Modern);
        let capabilities = asked.map_or_else(|| "{}".to_owned(), |exchange| exchange.capabilities.to_be_asked());
        let mut ask = Ask::new(self.errand.method()).with(self.fields.clone());
        ask.name = self.about.clone();
        ask.headers = self.headers.clone();
        ask.capabilities = Some(&capabilities);
        ask.log_level = exchange.as_deref().and_then(log_level);
        ask.listener = Some(Arc::new(Relay::new(self.upstream.name(), cx, self.upstream.log())));
        let modern = exchange.as_deref().filter(|exchange| exchange.era == Era::Modern);
        let answered = match modern {
            // Its questions go to the caller, who comes back with the answers.
            Some(exchange) => {
                if server_era == Era::Modern {
                    self.add_answers(&mut ask.fields, cx, exchange)?;
                }
                client.request(ask).await
            }
            None => client.call(ask).await.map(CallResult::into_raw),
        };
        let raw = answered.map_err(|error| {
            self.upstream.failed(&error);
            failure::request(self.upstream.name(), self.errand.kind(), error, exchange.as_deref())
        })?;
        self.reply(raw, server_era, cx, modern)
    }

    async fn client(&self, cx: &CallCx) -> Result<Client, Unavailable> {
        match &self.errand {
            Errand::Tool(tool) => self.upstream.client_for(cx.session.id, tool).await,
            _ => self.upstream.client(cx.session.id).await,
        }
    }

    fn reply(&self, raw: Box<RawValue>, server: Era, cx: &CallCx, modern: Option<&Exchange>) -> ToolResult<Reply> {
        let name = self.upstream.name();
        match read(raw, server).map_err(|error| failure::result(name, error))? {
            Came::Complete(raw) => {
                let offer = self.upstream.offer();
                let renames = !offer.naming.expose_uri("").is_empty();
                let rename = |uri: &str| offer.naming.expose_uri(uri);
                let to = Recipient { era: cx.era, rename: if renames { Some(&rename) } else { None } };
                let raw = ready(raw, self.errand.kind(), &to).map_err(|error| failure::result(name, error))?;
                Ok(Reply::Verbatim(raw))
            }
            Came::Asks(asked) => match modern {
                Some(exchange) => self.ask_caller(asked, cx, exchange),
                None => Err(failure::result(name, BadResult::AsksNothing)),
            },
        }
    }

    /// What the caller brings of an earlier round. Answers to the gate's own questions are none to the server's.
    fn add_answers(&self, fields: &mut String, cx: &CallCx, exchange: &Exchange) -> ToolResult<()> {
        let state = match exchange.request_state.as_deref() {
            None => None,
            Some(state) => match self.states.unwrap(&self.bound(cx), state) {
                None => return Ok(()),
                Some(Ok(state)) => Some(state),
                Some(Err(error)) => return Err(failure::state(error, exchange)),
            },
        };
        if let Some(answers) = &exchange.input_responses {
            fields.push_str(r#","inputResponses":"#);
            fields.push_str(answers.get());
        }
        if let Some(state) = state {
            fields.push_str(r#","requestState":"#);
            fields.push_str(&crate::wire::quoted(&state));
        }
        Ok(())
    }

    /// The server's questions are the result of this try.
    fn ask_caller(&self, asked: Asked, cx: &CallCx, exchange: &Exchange) -> ToolResult<Reply> {
        let name = self.upstream.name();
        let requests =
            passed_on(asked.requests, name, &exchange.capabilities).map_err(|error| failure::question(name, error))?;
        let mut result = json!({ "resultType": "input_required" });
        if !requests.is_empty() {
            result["inputRequests"] = requests.into();
        }
        if let Some(state) = asked.state {
            let wrapped = self.states.wrap(&self.bound(cx), &state).map_err(ToolError::failed)?;
            result["requestState"] = wrapped.into();
        }
        // A human has said yes to this call, and it is not over: its next try is the same call.
        if let Some(by) = cx.answered {
            cx.session.grants.lock().allow_once(self.key(), by, clock::monotonic_ms() + LIFE_MS);
        }
        to_raw_value(&result).map(Reply::Verbatim).map_err(ToolError::internal)
    }

    async fn follow(&self, uri: &str, client: &Client, exchange: Option<&Exchange>) -> ToolResult<Reply> {
        let subscription = self.subscriptions.add(&self.upstream, uri).map_err(ToolError::refused)?;
        client.subscribe(uri).await.map_err(|error| {
            self.upstream.failed(&error);
            failure::request(self.upstream.name(), Kind::Other, error, exchange)
        })?;
        if let Some(exchange) = exchange {
            exchange.follow(self.upstream.offer().naming.expose_uri(uri), subscription);
        }
        RawValue::from_string("{}".to_owned()).map(Reply::Verbatim).map_err(ToolError::internal)
    }

    fn key(&self) -> CallKey {
        CallKey::of(self.tool.as_str(), &self.args.digest())
    }

    fn bound<'a>(&'a self, cx: &'a CallCx) -> Bound<'a> {
        let server = self.upstream.name().as_str();
        Bound { server, principal: &cx.principal.id, session: cx.session.id, call: self.key() }
    }
}

/// The least severity of log messages that a server of the new era is to send. Old clients that have not said what they
/// want take everything; that is no wish for the details.
fn log_level(exchange: &Exchange) -> Option<&str> {
    match exchange.era {
        Era::Modern => exchange.log_level.as_deref().filter(|level| LOG_LEVELS.contains(level)),
        Era::Legacy => LOG_LEVELS.into_iter().skip(1).find(|level| exchange.wants_log(level)),
    }
}
