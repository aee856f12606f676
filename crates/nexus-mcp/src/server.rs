//! What each method answers. The same for all doors and both eras.

mod listen;

use std::fmt;
use std::fmt::Write;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use nexus_core::arguments::Arguments;
use nexus_core::call::{Call, CallCx};
use nexus_core::clock;
use nexus_core::hub::{Hub, Outcome};
use nexus_core::reply::Reply;
use nexus_core::session::Era;

use crate::asking::{Asking, PATIENCE};
use crate::exchange::{Capabilities, Exchange};
use crate::version::{self, MODERN, Protocol};
use crate::wire::{INTERNAL_ERROR, MISSING_CAPABILITY, Params, Request, RpcError, UNSUPPORTED_VERSION, quoted};

pub use self::listen::{Moved, Moves, News};

/// How long a modern client may keep a list it does not watch. Milliseconds.
pub(crate) const LIST_TTL_MS: u32 = 60_000;

/// Answers requests.
pub struct Server {
    pub hub: Arc<Hub>,
    pub protocol: Protocol,
    /// Cancelled when the hub is to end; streams that would go on for ever end with it.
    pub closing: CancellationToken,
    asking: Asking,
    extras: Option<Arc<dyn Extras>>,
    /// `serverInfo`, and what every client is told at the start.
    info: Value,
    instructions: &'static str,
    /// `"_meta":{…serverInfo…}`, which modern results carry.
    identity: Box<str>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

/// Methods beyond tools: prompts, resources, completions. Those of upstream servers, or the fixtures of the
/// conformance suite.
pub trait Extras: Send + Sync {
    /// Added to what `initialize` and `server/discover` announce.
    fn capabilities(&self) -> Value;

    /// None: not one of its methods.
    fn answer<'a>(
        &'a self,
        method: &'a str,
        params: &'a Params<'_>,
        exchange: &'a Exchange,
    ) -> Option<BoxFuture<'a, Result<Answer, RpcError>>>;

    /// What moves beside the tools.
    fn moves(&self) -> Moves;

    /// The call after which changes of a resource are told to this exchange. None: no such resource.
    fn follow(&self, uri: &str, exchange: &Exchange) -> Option<Answer> {
        let _ = (uri, exchange);
        None
    }
}

/// How a method beyond tools is answered.
#[derive(Debug)]
pub enum Answer {
    /// With this: a JSON object as text.
    Result(String),
    /// With the result of a call, which goes through the gate and into the record like any other.
    Call { tool: String, args: Arguments },
}

/// What every client is told at the start. Short: it is paid for in every conversation.
const INSTRUCTIONS: &str = "Nexus is the one gate to this homelab. Reads are free. A write may wait for the operator: \
they are asked, or the result says `approval_required`, nothing has happened yet, and `how` says what to do. A no is \
final: do not look for another way. `revoke_writes` locks again when you are done. Everything is recorded. \
Long output is cut in the middle; `read_output` reads on from its cursor.";

impl Server {
    pub fn new(
        hub: Arc<Hub>,
        protocol: Protocol,
        version: &'static str,
        closing: CancellationToken,
        extras: Option<Arc<dyn Extras>>,
    ) -> Self {
        let info = json!({ "name": "nexus", "title": "Nexus", "version": version });
        let asking = Asking::new(hub.approvals.clone(), closing.clone(), PATIENCE);
        Self { hub, protocol, closing, asking, extras, identity: identity(&info), info, instructions: INSTRUCTIONS }
    }

    /// Under another name and with other words: for a server that is no hub.
    #[must_use]
    pub fn introduced(mut self, name: &str, instructions: &'static str) -> Self {
        self.info["name"] = name.into();
        self.info["title"] = name.into();
        self.identity = identity(&self.info);
        self.instructions = instructions;
        self
    }

    /// The result of a request as JSON text.
    pub async fn answer(&self, request: &Request, exchange: Arc<Exchange>) -> Result<String, RpcError> {
        let params = Params::parse(request.params.as_deref())?;
        let modern = exchange.era == Era::Modern;
        match request.method.as_str() {
            "tools/call" => self.call(&params, exchange).await,
            "tools/list" => self.list(&params, &exchange),
            "server/discover" if modern => Ok(self.discover()),
            "subscriptions/listen" if modern => Box::pin(self.listen(&params, &exchange)).await,
            "initialize" if !modern => Ok(self.initialize(&params, &exchange)),
            "ping" if !modern => Ok("{}".to_owned()),
            method => match self.extras.as_ref().and_then(|extras| extras.answer(method, &params, &exchange)) {
                Some(answer) => match answer.await? {
                    Answer::Result(result) => Ok(self.stamped(exchange.era, result)),
                    Answer::Call { tool, args } => {
                        let reply = Box::pin(self.reply(tool, args, &params, &exchange)).await?;
                        self.as_result(reply, exchange.era)
                    }
                },
                None => Err(RpcError::method_not_found(method)),
            },
        }
    }

    async fn call(&self, params: &Params<'_>, exchange: Arc<Exchange>) -> Result<String, RpcError> {
        let Some(tool) = &params.name else { return Err(RpcError::invalid_params("`name` is missing: which tool?")) };
        let args = params.arguments.map_or_else(Arguments::none, |raw| Arguments::raw(RawValue::to_owned(raw)));
        let reply = self.reply(tool.clone().into_owned(), args, params, &exchange).await?;
        Ok(self.render(reply, exchange.era))
    }

    /// A call on behalf of a request.
    fn as_call(&self, tool: String, args: Arguments, params: &Params<'_>, exchange: &Arc<Exchange>) -> Call {
        Call {
            tool,
            args,
            said: self.asking.said(params, exchange.era),
            cx: CallCx {
                id: clock::new_id(),
                principal: exchange.principal.clone(),
                session: exchange.session.clone(),
                era: exchange.era,
                client_name: exchange.client_name.clone(),
                cancel: exchange.cancel.clone(),
                client: exchange.clone(),
                answered: None,
                noted: Arc::default(),
            },
        }
    }

    /// Calls, and asks whoever has to be asked.
    async fn reply(
        &self,
        tool: String,
        args: Arguments,
        params: &Params<'_>,
        exchange: &Arc<Exchange>,
    ) -> Result<Reply, RpcError> {
        let reply = match self.hub.call(self.as_call(tool, args, params, exchange)).await {
            Ok(Outcome::Done(reply)) => reply,
            Ok(Outcome::Ask(pending)) => Box::pin(self.asking.ask(pending, exchange)).await,
            Err(unknown) => {
                let unknown = nexus_core::text::cut(&unknown.0, 100).into_owned();
                return Err(RpcError::invalid_params(format!("unknown tool: {unknown}")).with_status(200));
            }
        };
        match exchange.verdict() {
            Some(error) => Err(error),
            None => Ok(reply),
        }
    }

    /// The reply as the result of a method whose results cannot say that something went wrong, or waits.
    fn as_result(&self, reply: Reply, era: Era) -> Result<String, RpcError> {
        match reply {
            Reply::Verbatim(raw) => Ok(self.dressed(era, raw)),
            Reply::Plain { text, structured, .. } => {
                let data = structured.and_then(|body| serde_json::from_str(body.get()).ok()).unwrap_or_default();
                Err(RpcError::invalid_request(text).with_status(200).with_data(data))
            }
        }
    }

    fn render(&self, reply: Reply, era: Era) -> String {
        let (text, structured, is_error) = match reply {
            Reply::Plain { text, structured, is_error } => (text, structured, is_error),
            Reply::Verbatim(raw) => return self.dressed(era, raw),
        };
        let mut out = String::with_capacity(text.len() + structured.as_ref().map_or(0, |s| s.get().len()) + 256);
        out.push_str(match era {
            Era::Modern => r#"{"resultType":"complete","content":[{"type":"text","text":"#,
            Era::Legacy => r#"{"content":[{"type":"text","text":"#,
        });
        out.push_str(&quoted(&text));
        out.push_str("}]");
        if let Some(structured) = structured {
            let _ = write!(out, r#","structuredContent":{structured}"#);
        }
        let _ = write!(out, r#","isError":{is_error}"#);
        if era == Era::Modern {
            let _ = write!(out, ",{}", self.identity);
        }
        out.push('}');
        out
    }

    /// A result made elsewhere, with what the modern era wants in every result. It may have megabytes: the old era gets
    /// it without a copy.
    fn dressed(&self, era: Era, object: Box<RawValue>) -> String {
        match era {
            Era::Legacy => Box::<str>::from(object).into(),
            Era::Modern => self.stamped(era, Box::<str>::from(object).into()),
        }
    }

    fn stamped(&self, era: Era, mut object: String) -> String {
        #[derive(serde::Deserialize)]
        struct Has<'a> {
            #[serde(borrow, rename = "resultType")]
            kind: Option<&'a RawValue>,
            #[serde(borrow, rename = "_meta")]
            meta: Option<&'a RawValue>,
        }
        if era == Era::Legacy {
            return object;
        }
        let Ok(has) = serde_json::from_str::<Has<'_>>(&object) else { return object };
        let kind = has.kind.is_none().then_some(r#""resultType":"complete""#);
        let meta = has.meta.is_none().then_some(&*self.identity);
        let Some(inner) = object.trim_start().strip_prefix('{') else { return object };
        let at = object.len() - inner.len();
        let mut front = [kind, meta].into_iter().flatten().collect::<Vec<_>>().join(",");
        if !front.is_empty() && !inner.trim_start().starts_with('}') {
            front.push(',');
        }
        // In its place: a copy of megabytes would stand beside it.
        object.insert_str(at, &front);
        object
    }

    fn list(&self, params: &Params<'_>, exchange: &Exchange) -> Result<String, RpcError> {
        if params.cursor.is_some() {
            return Err(RpcError::invalid_params("no such cursor: all tools are on one page").with_status(200));
        }
        let tools = self.hub.catalogue.listing(&exchange.principal);
        let mut out = String::with_capacity(tools.len() + 256);
        match exchange.era {
            Era::Legacy => {
                let _ = write!(out, r#"{{"tools":{tools}}}"#);
            }
            Era::Modern => {
                let _ = write!(
                    out,
                    r#"{{"resultType":"complete","tools":{tools},"ttlMs":{LIST_TTL_MS},"cacheScope":"private",{}}}"#,
                    self.identity
                );
            }
        }
        Ok(out)
    }

    fn initialize(&self, params: &Params<'_>, exchange: &Exchange) -> String {
        let version = version::negotiate(params.protocol_version.as_deref().unwrap_or_default());
        let _ = exchange.peer.version.set(version);
        let capabilities = params.capabilities.and_then(Capabilities::parse).unwrap_or_default();
        let _ = exchange.peer.capabilities.set(capabilities);
        if let Some(client) = &params.client_info {
            exchange.session.introduce(&client.name, &client.version);
        }
        json!({
            "protocolVersion": version,
            "capabilities": self.capabilities(),
            "serverInfo": self.info,
            "instructions": self.instructions,
        })
        .to_string()
    }

    fn discover(&self) -> String {
        format!(
            r#"{{"resultType":"complete","supportedVersions":{},"capabilities":{},"instructions":{},"ttlMs":{LIST_TTL_MS},"cacheScope":"private",{}}}"#,
            json!(self.protocol.versions()),
            self.capabilities(),
            quoted(self.instructions),
            self.identity
        )
    }

    fn capabilities(&self) -> Value {
        let mut capabilities = json!({ "tools": { "listChanged": true } });
        if let (Some(extras), Some(fields)) = (&self.extras, capabilities.as_object_mut())
            && let Value::Object(more) = extras.capabilities()
        {
            fields.extend(more);
        }
        capabilities
    }

    /// Checks what the modern era demands of a request, and takes over what it says.
    pub fn accept_modern(&self, params: &Params<'_>, exchange: &mut Exchange) -> Result<(), RpcError> {
        let Some(meta) = &params.meta else {
            return Err(RpcError::invalid_params(
                "`_meta` is missing; it must name protocolVersion and clientCapabilities",
            ));
        };
        let Some(version) = &meta.version else {
            return Err(RpcError::invalid_params("`_meta` lacks io.modelcontextprotocol/protocolVersion"));
        };
        if version != MODERN || !self.protocol.speaks(Era::Modern) {
            return Err(self.unsupported(version));
        }
        let Some(capabilities) = meta.capabilities.and_then(Capabilities::parse) else {
            return Err(RpcError::invalid_params(
                "`_meta` lacks the object io.modelcontextprotocol/clientCapabilities",
            ));
        };
        exchange.capabilities = capabilities;
        exchange.log_level = meta.log_level.as_deref().map(str::to_owned);
        exchange.input_responses = params.input_responses.map(RawValue::to_owned);
        exchange.request_state = params.request_state.as_deref().map(str::to_owned);
        exchange.client_name =
            meta.client_info.as_ref().map(|client| exchange.session.label(&client.name, &client.version));
        Ok(())
    }

    /// A version this hub does not speak, with those that it does.
    pub fn unsupported(&self, requested: &str) -> RpcError {
        let requested = nexus_core::text::cut(requested, 40).into_owned();
        RpcError::new(UNSUPPORTED_VERSION, format!("protocol version {requested} is not supported"), 400)
            .with_data(json!({ "supported": self.protocol.versions(), "requested": requested }))
    }
}

fn identity(info: &Value) -> Box<str> {
    format!(r#""_meta":{{"io.modelcontextprotocol/serverInfo":{info}}}"#).into()
}

/// A tool needs something of the client that it did not offer.
pub fn missing_capability(name: &str) -> RpcError {
    RpcError::new(MISSING_CAPABILITY, format!("this needs the client capability `{name}`"), 400)
        .with_data(json!({ "requiredCapabilities": { name: {} } }))
}

/// Something of ours broke while a request was answered.
pub fn broken() -> RpcError {
    let incident = clock::new_id();
    tracing::error!(%incident, "a request ended without an answer");
    RpcError::new(INTERNAL_ERROR, format!("internal error, incident {incident}"), 500)
}
