//! What the official conformance suite expects of a server under test: tools, prompts and resources
//! that serve no other purpose. With `nexus serve --conformance` they stand beside the real tools;
//! everything else is the same program.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::future::ready;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use thiserror::Error;
use tokio::sync::watch;

use nexus_core::arguments::Arguments;
use nexus_core::call::CallCx;
use nexus_core::error::{ToolError, ToolResult};
use nexus_core::gate::Permit;
use nexus_core::name::{NodeName, ToolName};
use nexus_core::provider::{Intent, Origin, Own, Provider, Revision};
use nexus_core::reply::Reply;
use nexus_core::session::Era;
use nexus_core::tool::{Access, BadTool, Definition, Family, NotCovered, ToolSpec};

use crate::exchange::{AskError, Exchange};
use crate::seal::Seal;
use crate::server::{Answer, Extras, Moves};
use crate::wire::{INTERNAL_ERROR, Params, RpcError};

mod asking;
mod content;
mod ordinary;
mod prompts;
mod resources;
mod rounds;

/// The tables of contents.
const TABLES: [&[Fixture]; 3] = [content::TOOLS, asking::TOOLS, rounds::TOOLS];

/// Everything the suite asks for, as a provider of tools and as the methods beyond tools.
pub struct Fixtures {
    origin: Origin,
    ordinary: Family<()>,
    by_name: HashMap<&'static str, &'static Fixture>,
    /// The tools without and with the one that comes and goes.
    listings: [Arc<[Arc<ToolSpec>]>; 2],
    shared: Arc<Shared>,
}

/// What the fixtures remember while the program runs.
struct Shared {
    seal: Seal,
    /// In odd revisions there is one tool more, `test_changed`.
    tools: watch::Sender<Revision>,
    /// In odd revisions there is one prompt more.
    prompts: watch::Sender<Revision>,
}

impl fmt::Debug for Fixtures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixtures").field("tools", &self.tools().len()).finish_non_exhaustive()
    }
}

impl Fixtures {
    /// With as many tools more that do nothing, for measuring long listings.
    pub fn new(dummies: usize) -> Result<Arc<Self>, BadTool> {
        let origin = Origin::Own(Own::BuiltIn);
        let ordinary = Family::new(origin.clone(), Arc::new(()), &[ordinary::TOOLS])?;
        let mut specs = ordinary.tools().to_vec();
        for fixture in TABLES.into_iter().flatten() {
            specs.push(fixture.spec(fixture.name)?);
        }
        for number in 0..dummies {
            specs.push(ordinary::DUMMY.spec(&format!("{}{number:04}", ordinary::DUMMY.name))?);
        }
        let usual: Arc<[_]> = specs.clone().into();
        specs.push(content::CHANGED.spec(content::CHANGED.name)?);
        let all = TABLES.into_iter().flatten().chain([&content::CHANGED]);
        Ok(Arc::new(Self {
            origin,
            ordinary,
            by_name: all.map(|fixture| (fixture.name, fixture)).collect(),
            listings: [usual, specs.into()],
            shared: Arc::new(Shared {
                seal: Seal::random(),
                tools: watch::Sender::new(0),
                prompts: watch::Sender::new(0),
            }),
        }))
    }
}

/// A tool that may answer with more than text: its definition and what it does.
struct Fixture {
    name: &'static str,
    about: &'static str,
    takes: Takes,
    run: fn(Turn) -> BoxFuture<'static, Result<Reply, Trouble>>,
}

/// A fixture's arguments.
enum Takes {
    /// Strings, all of them required: name and meaning.
    Texts(&'static [(&'static str, &'static str)]),
    /// Any object; the schema is only shown.
    Shown(fn() -> Value),
}

const NOTHING: Takes = Takes::Texts(&[]);

#[derive(Debug, Error)]
enum BadArguments {
    #[error("the arguments are not an object")]
    NotAnObject,
    #[error("the argument `{0}` is missing or not a string")]
    Missing(&'static str),
    #[error("there is no argument `{0}`")]
    Unknown(String),
}

impl Fixture {
    fn spec(&self, name: &str) -> Result<Arc<ToolSpec>, BadTool> {
        let input = match self.takes.schema() {
            Value::Object(schema) => schema,
            _ => Map::new(),
        };
        let spec = ToolSpec::new(Definition {
            name,
            aliases: &[],
            description: self.about,
            access: Access::Read,
            most: Access::Read,
            input,
            output: None,
        })?;
        Ok(Arc::new(spec))
    }
}

impl Takes {
    fn schema(&self) -> Value {
        match self {
            Self::Shown(schema) => schema(),
            Self::Texts(texts) => {
                let field = |(name, about): &(&str, &str)| {
                    ((*name).to_owned(), json!({ "type": "string", "description": about }))
                };
                let properties: Map<String, Value> = texts.iter().map(field).collect();
                let required: Vec<&str> = texts.iter().map(|(name, _)| *name).collect();
                json!({
                    "type": "object",
                    "properties": properties,
                    "required": required,
                    "additionalProperties": false,
                })
            }
        }
    }

    fn check(&self, args: &Map<String, Value>) -> Result<(), BadArguments> {
        let Self::Texts(texts) = self else { return Ok(()) };
        if let Some((missing, _)) = texts.iter().find(|(name, _)| !args.get(*name).is_some_and(Value::is_string)) {
            return Err(BadArguments::Missing(missing));
        }
        match args.keys().find(|given| texts.iter().all(|(name, _)| name != given)) {
            Some(unknown) => Err(BadArguments::Unknown(unknown.clone())),
            None => Ok(()),
        }
    }
}

/// A call of a fixture.
struct Turn {
    tool: &'static str,
    args: Map<String, Value>,
    cx: CallCx,
    shared: Arc<Shared>,
}

#[derive(Debug, Error)]
#[error("this tool can only be called over MCP")]
struct NotOverMcp;

impl Turn {
    /// The request behind the call.
    fn exchange(&self) -> ToolResult<&Exchange> {
        (&*self.cx.client as &dyn Any).downcast_ref().ok_or_else(|| ToolError::refused(NotOverMcp))
    }

    fn text(&self, name: &str) -> &str {
        self.args.get(name).and_then(Value::as_str).unwrap_or_default()
    }
}

/// Why a fixture does not answer: for the model to read, or a protocol error.
enum Trouble {
    Tool(ToolError),
    Protocol(RpcError),
}

impl From<ToolError> for Trouble {
    fn from(error: ToolError) -> Self {
        Self::Tool(error)
    }
}

impl From<RpcError> for Trouble {
    fn from(error: RpcError) -> Self {
        Self::Protocol(error)
    }
}

impl From<AskError> for Trouble {
    fn from(error: AskError) -> Self {
        Self::Tool(ToolError::failed(error))
    }
}

impl From<Trouble> for RpcError {
    /// For methods whose results cannot say that something went wrong.
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Tool(error) => RpcError::new(INTERNAL_ERROR, error.to_string(), 200),
            Trouble::Protocol(error) => error,
        }
    }
}

/// A whole result object, which the server takes as it is.
fn verbatim(result: &Value) -> Result<Reply, Trouble> {
    let raw = serde_json::value::to_raw_value(result).map_err(ToolError::internal)?;
    Ok(Reply::Verbatim(raw))
}

impl Provider for Fixtures {
    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn tools(&self) -> Arc<[Arc<ToolSpec>]> {
        let [usual, changed] = &self.listings;
        if is_odd(&self.shared.tools) { changed.clone() } else { usual.clone() }
    }

    fn changes(&self) -> watch::Receiver<Revision> {
        self.shared.tools.subscribe()
    }

    fn asks(&self) -> bool {
        true
    }

    fn intend(&self, tool: &ToolName, args: &Arguments) -> ToolResult<Box<dyn Intent>> {
        let fixture = match self.by_name.get(tool.as_str()) {
            Some(fixture) => fixture,
            None if tool.as_str().starts_with(ordinary::DUMMY.name) => &ordinary::DUMMY,
            None => return self.ordinary.intend(tool, args),
        };
        let tree = args.tree();
        let not_one = || ToolError::refused(BadArguments::NotAnObject);
        let args = tree.as_deref().and_then(Value::as_object).ok_or_else(not_one)?;
        fixture.takes.check(args).map_err(ToolError::refused)?;
        Ok(Box::new(Ready { fixture, args: args.clone(), shared: self.shared.clone() }))
    }
}

fn is_odd(revision: &watch::Sender<Revision>) -> bool {
    *revision.borrow() % 2 == 1
}

/// A fixture with its arguments, ready to run.
struct Ready {
    fixture: &'static Fixture,
    args: Map<String, Value>,
    shared: Arc<Shared>,
}

impl Intent for Ready {
    fn access(&self) -> Access {
        Access::Read
    }

    fn summary(&self) -> String {
        format!("run the fixture {}", self.fixture.name)
    }

    fn node(&self) -> Option<&NodeName> {
        None
    }

    fn run(self: Box<Self>, permit: Permit, cx: CallCx) -> BoxFuture<'static, ToolResult<Reply>> {
        let Self { fixture, args, shared } = *self;
        async move {
            if !permit.covers(Access::Read) {
                return Err(ToolError::internal(NotCovered(Access::Read)));
            }
            let client = cx.client.clone();
            match (fixture.run)(Turn { tool: fixture.name, args, cx, shared }).await {
                Ok(reply) => Ok(reply),
                Err(Trouble::Tool(error)) => Err(error),
                Err(Trouble::Protocol(error)) => {
                    let text = error.message.clone();
                    if let Some(exchange) = (&*client as &dyn Any).downcast_ref::<Exchange>() {
                        exchange.fail(error);
                    }
                    Err(ToolError::refused(text))
                }
            }
        }
        .boxed()
    }
}

impl Extras for Fixtures {
    fn capabilities(&self) -> Value {
        json!({
            "prompts": { "listChanged": true },
            "resources": { "subscribe": true },
            "completions": {},
            "logging": {},
        })
    }

    fn answer<'a>(
        &'a self,
        method: &'a str,
        params: &'a Params<'_>,
        exchange: &'a Exchange,
    ) -> Option<BoxFuture<'a, Result<Answer, RpcError>>> {
        let legacy = exchange.era == Era::Legacy;
        let answer = match method {
            "prompts/get" => {
                let got = prompts::get(params, exchange);
                return Some(got.map(|got| got.map(|got| Answer::Result(got.to_string()))).boxed());
            }
            "prompts/list" => prompts::list(params, is_odd(&self.shared.prompts)),
            "resources/list" => resources::list(params),
            "resources/templates/list" => resources::templates(params),
            "resources/read" => resources::read(params, exchange.era),
            // Nothing here changes by itself, so there is nobody to tell and nothing to remember.
            "resources/subscribe" | "resources/unsubscribe" if legacy => {
                resources::read(params, exchange.era).map(|_| json!({}))
            }
            "logging/setLevel" if legacy => set_log_level(params, exchange),
            "completion/complete" => Ok(json!({ "completion": { "values": [], "total": 0, "hasMore": false } })),
            _ => return None,
        };
        let cacheable = !legacy && method != "completion/complete";
        let answer = answer.map(|result| if cacheable { cached(result) } else { result });
        Some(ready(answer.map(|result| Answer::Result(result.to_string()))).boxed())
    }

    fn moves(&self) -> Moves {
        Moves { prompts: Some(self.shared.prompts.subscribe()), ..Moves::default() }
    }
}

fn set_log_level(params: &Params<'_>, exchange: &Exchange) -> Result<Value, RpcError> {
    let level = params.level.as_deref().unwrap_or_default();
    match exchange.peer.set_log_level(level) {
        true => Ok(json!({})),
        false => Err(RpcError::invalid_params("`level` is not a log level").with_status(200)),
    }
}

/// Says how long a modern client may keep the result. Milliseconds.
fn cached(mut result: Value) -> Value {
    result["ttlMs"] = 60_000.into();
    result["cacheScope"] = "private".into();
    result
}

/// The lists are short: there is no second page to ask for.
fn first_page(params: &Params<'_>) -> Result<(), RpcError> {
    match params.cursor {
        None => Ok(()),
        Some(_) => Err(RpcError::invalid_params("no such cursor: everything is on one page").with_status(200)),
    }
}
