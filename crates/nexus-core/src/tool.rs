//! A tool is a type: its fields are the arguments, its doc comment is what the model reads.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use thiserror::Error;
use tokio::sync::watch;

use crate::arguments::Arguments;
use crate::call::CallCx;
use crate::error::{ToolError, ToolResult};
use crate::gate::Permit;
use crate::name::{NodeName, ToolName};
use crate::principal::Principal;
use crate::provider::{Intent, Origin, Provider, Revision};
use crate::redact;
use crate::reply::Reply;

/// What a call may touch. Ordered: one call may raise its tool's class up to `MOST`, never lower it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Looks, changes nothing.
    Read,
    /// Looks where looking itself matters; recorded with care, still free.
    ReadLogged,
    /// Changes something.
    Write,
}

impl Access {
    pub fn as_str(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::ReadLogged => "read_logged",
            Access::Write => "write",
        }
    }
}

/// Who finds a tool in `tools/list`. Whoever does not can call it all the same: it is part of something else, or held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listed {
    #[default]
    Everyone,
    /// Keys of agents: what serves their target's tasks.
    Agents,
    Nobody,
}

impl Listed {
    pub fn to(self, principal: &Principal) -> bool {
        match self {
            Listed::Everyone => true,
            Listed::Agents => principal.serves.is_some(),
            Listed::Nobody => false,
        }
    }
}

/// What is hidden in a tool's replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hidden {
    /// Whatever looks like a secret.
    #[default]
    Secrets,
    /// Only the hub's own secrets: the reply hands on what somebody meant for the caller, who needs it as it is.
    OwnSecrets,
}

/// One thing a model can call; `E` is what all tools of its family share.
pub trait Tool<E>: DeserializeOwned + JsonSchema + Send + 'static {
    const NAME: &'static str;
    /// Other names it answers to, which are not listed.
    const ALIASES: &'static [&'static str] = &[];
    const ACCESS: Access;
    /// The highest class a call may raise itself to. A call above it is an internal error.
    const MOST: Access = Self::ACCESS;
    const LISTED: Listed = Listed::Everyone;
    const HIDDEN: Hidden = Hidden::Secrets;
    /// Characters of the summary that are shown, where that may be long. A tool must not cut it by itself: half of a
    /// secret is not known for one, and would be shown.
    const LONGEST_SUMMARY: usize = usize::MAX;
    /// An object: it becomes `structuredContent`, its schema `outputSchema`.
    type Reply: Serialize + JsonSchema + Send;

    /// One line for the human who is asked: what exactly would happen.
    fn summary(&self) -> String;

    fn access(&self) -> Access {
        Self::ACCESS
    }

    fn node(&self) -> Option<&NodeName> {
        None
    }

    /// This call must be confirmed whatever was approved before.
    fn always_asks(&self) -> bool {
        false
    }

    /// Looks up what the summary cannot tell and a human needs to decide. Asked for only when a human is.
    fn background(&self, _env: &Arc<E>) -> Option<BoxFuture<'static, Option<String>>> {
        None
    }

    /// A reply may have its own text; otherwise it is the compact JSON.
    fn text(_reply: &Self::Reply) -> Option<String> {
        None
    }

    fn run(self, env: &E, cx: &CallCx) -> impl Future<Output = ToolResult<Self::Reply>> + Send;
}

/// What clients are told of a tool. Rendered once, when it is made.
pub struct ToolSpec {
    pub name: ToolName,
    pub aliases: Vec<ToolName>,
    pub title: String,
    pub description: String,
    pub access: Access,
    pub most: Access,
    pub input: Map<String, Value>,
    pub output: Option<Map<String, Value>>,
    /// Paths of the arguments whose schema says `format: "secret"`: `pin`, `login.pin`.
    pub secret_fields: Vec<String>,
    /// Some argument is to be repeated in a header (`x-mcp-header`), for those who route by them.
    pub mirrors: bool,
    pub listed: Listed,
    pub hidden: Hidden,
    /// The tool as it stands in `tools/list`.
    pub rendered: Box<str>,
}

impl fmt::Debug for ToolSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolSpec").field("name", &self.name).field("access", &self.access).finish_non_exhaustive()
    }
}

#[derive(Debug, Error)]
pub enum BadTool {
    #[error(transparent)]
    Name(#[from] crate::name::BadToolName),
    #[error("the tool `{0}` has no description")]
    NoDescription(ToolName),
    #[error("the {which} schema of `{tool}` is not an object schema")]
    NotAnObject { tool: ToolName, which: &'static str },
}

/// A tool of somebody else: its definition was checked and rendered by whoever speaks with them.
#[derive(Debug)]
pub struct Foreign {
    pub name: ToolName,
    pub title: String,
    pub description: String,
    pub access: Access,
    pub input: Map<String, Value>,
    pub rendered: Box<str>,
    pub listed: Listed,
}

/// The parts of a tool definition, before it is checked and rendered.
#[derive(Debug)]
pub struct Definition<'a> {
    pub name: &'a str,
    pub aliases: &'a [&'a str],
    pub description: &'a str,
    pub access: Access,
    pub most: Access,
    pub input: Map<String, Value>,
    pub output: Option<Map<String, Value>>,
}

impl ToolSpec {
    pub fn new(definition: Definition<'_>) -> Result<Self, BadTool> {
        let Definition { name, aliases, description, access, most, input, output } = definition;
        let name = ToolName::parse(name)?;
        let aliases = aliases.iter().map(|alias| ToolName::parse(alias)).collect::<Result<_, _>>()?;
        if description.trim().is_empty() {
            return Err(BadTool::NoDescription(name));
        }
        let is_object = |schema: &Map<String, Value>| schema.get("type").is_some_and(|kind| kind == "object");
        if !is_object(&input) {
            return Err(BadTool::NotAnObject { tool: name, which: "input" });
        }
        if output.as_ref().is_some_and(|output| !is_object(output)) {
            return Err(BadTool::NotAnObject { tool: name, which: "output" });
        }
        let title = title_of(name.as_str());
        let secret_fields = redact::secret_fields(&input);
        let mirrors = mirrors(&input);
        let mut listed = json!({
            "name": name.as_str(),
            "title": title,
            "description": description,
            "inputSchema": input,
        });
        if let (Some(output), Some(fields)) = (&output, listed.as_object_mut()) {
            fields.insert("outputSchema".into(), with_errors(output, most));
        }
        listed["annotations"] = annotations(&title, most);
        let rendered = listed.to_string().into_boxed_str();
        Ok(Self {
            name,
            aliases,
            title,
            description: description.to_owned(),
            access,
            most,
            input,
            output,
            mirrors,
            listed: Listed::Everyone,
            hidden: Hidden::Secrets,
            secret_fields,
            rendered,
        })
    }

    /// The spec of a tool that is not ours. Its schema is kept as a tree only where headers are held to it: there may
    /// be thousands of them.
    pub fn foreign(tool: Foreign) -> Self {
        let Foreign { name, title, description, access, input, rendered, listed } = tool;
        let secret_fields = redact::secret_fields(&input);
        let mirrors = mirrors(&input);
        Self {
            name,
            aliases: Vec::new(),
            title,
            description,
            access,
            most: access,
            input: if mirrors { input } else { Map::new() },
            output: None,
            secret_fields,
            mirrors,
            listed,
            hidden: Hidden::Secrets,
            rendered,
        }
    }
}

/// What clients are told of the replies: the tool's own, an error, and for a write also that it waits. The
/// TypeScript SDK holds even error results to the schema, and would hide from the model what went wrong.
pub fn with_errors(reply: &Map<String, Value>, most: Access) -> Value {
    let error = json!({ "type": "object", "properties": { "error": { "type": "object" } }, "required": ["error"] });
    let waits = json!({
        "type": "object",
        "properties": { "status": { "const": "approval_required" } },
        "required": ["status", "action", "code", "how"],
    });
    let mut any = vec![Value::Object(reply.clone()), error];
    if most == Access::Write {
        any.push(waits);
    }
    json!({ "type": "object", "anyOf": any })
}

/// Whether `x-mcp-header` stands at a field, at any depth.
fn mirrors(schema: &Map<String, Value>) -> bool {
    let fields = schema.get("properties").and_then(Value::as_object);
    let objects = fields.into_iter().flatten().filter_map(|(_, field)| field.as_object());
    objects.into_iter().any(|field| field.contains_key("x-mcp-header") || mirrors(field))
}

/// All four hints, for clients whose defaults differ. A tool that may write is shown as one that does.
fn annotations(title: &str, most: Access) -> Value {
    let reads = most < Access::Write;
    json!({ "title": title, "readOnlyHint": reads, "destructiveHint": !reads, "idempotentHint": reads, "openWorldHint": !reads })
}

/// `read_file` is shown to people as `Read file`.
fn title_of(name: &str) -> String {
    let words = name.replace(['_', '-'], " ");
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// A tool's line in its family's table of contents.
pub struct Entry<E> {
    pub name: &'static str,
    spec: fn() -> Result<ToolSpec, BadTool>,
    intend: Intend<E>,
}

type Intend<E> = fn(Arc<E>, &Arguments) -> ToolResult<Box<dyn Intent>>;

impl<E> fmt::Debug for Entry<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.name).finish()
    }
}

impl<E: Send + Sync + 'static> Entry<E> {
    pub const fn of<T: Tool<E>>() -> Self {
        Self { name: T::NAME, spec: spec_of::<E, T>, intend: intend_of::<E, T> }
    }

    /// What clients are told of it, without anything to run it on.
    pub fn spec(&self) -> Result<ToolSpec, BadTool> {
        (self.spec)()
    }
}

fn spec_of<E, T: Tool<E>>() -> Result<ToolSpec, BadTool> {
    let mut input = schema_of::<T>();
    let description = input.remove("description");
    let mut output = schema_of::<T::Reply>();
    output.remove("description");
    // A type without fields has no `properties`; some clients insist on them.
    input.entry("properties").or_insert_with(|| json!({}));
    let spec = ToolSpec::new(Definition {
        name: T::NAME,
        aliases: T::ALIASES,
        description: description.as_ref().and_then(Value::as_str).unwrap_or_default(),
        access: T::ACCESS,
        most: T::MOST,
        input,
        output: Some(output),
    })?;
    Ok(ToolSpec { listed: T::LISTED, hidden: T::HIDDEN, ..spec })
}

/// Without references: several clients do not follow them.
fn schema_of<T: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let mut schema = schema.to_value();
    plain(&mut schema);
    let mut fields = match schema {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    fields.remove("title");
    fields
}

/// Drops what only Rust knows (`uint64`; validators complain about formats they have not heard of) and
/// joins the lines of each paragraph, which were broken for a source file's width.
fn plain(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("format").and_then(Value::as_str).is_some_and(is_rust_number) {
                fields.remove("format");
            }
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text =
                    text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect::<Vec<_>>().join("\n\n");
            }
            fields.values_mut().for_each(plain);
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_rust_number(format: &str) -> bool {
    format.starts_with("uint") || format.starts_with("int") || matches!(format, "double" | "float")
}

fn intend_of<E: Send + Sync + 'static, T: Tool<E>>(env: Arc<E>, args: &Arguments) -> ToolResult<Box<dyn Intent>> {
    Ok(Box::new(Ready { tool: args.parse::<T>()?, env }))
}

/// A tool with its arguments, ready to run.
struct Ready<E, T> {
    tool: T,
    env: Arc<E>,
}

#[derive(Debug, Error)]
#[error("the permit does not cover a {}", .0.as_str())]
pub struct NotCovered(pub Access);

impl<E: Send + Sync + 'static, T: Tool<E>> Intent for Ready<E, T> {
    fn access(&self) -> Access {
        self.tool.access().max(T::ACCESS)
    }

    fn summary(&self) -> String {
        self.tool.summary()
    }

    fn longest_summary(&self) -> usize {
        T::LONGEST_SUMMARY
    }

    fn node(&self) -> Option<&NodeName> {
        self.tool.node()
    }

    fn always_asks(&self) -> bool {
        self.tool.always_asks()
    }

    fn background(&self) -> Option<BoxFuture<'static, Option<String>>> {
        self.tool.background(&self.env)
    }

    fn run(self: Box<Self>, permit: Permit, cx: CallCx) -> BoxFuture<'static, ToolResult<Reply>> {
        let Self { tool, env } = *self;
        async move {
            let access = tool.access().max(T::ACCESS);
            if !permit.covers(access) {
                return Err(ToolError::internal(NotCovered(access)));
            }
            let reply = tool.run(&env, &cx).await?;
            Reply::structured(&reply, T::text(&reply))
        }
        .boxed()
    }
}

/// Tools that share an environment: a provider made from tables of contents.
pub struct Family<E: 'static> {
    origin: Origin,
    env: Arc<E>,
    specs: Arc<[Arc<ToolSpec>]>,
    entries: Vec<(ToolName, &'static Entry<E>)>,
    /// Kept so that the receivers do not take the family for gone; its tools never change.
    changes: watch::Sender<Revision>,
}

impl<E> fmt::Debug for Family<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family").field("origin", &self.origin).field("tools", &self.specs.len()).finish_non_exhaustive()
    }
}

#[derive(Debug, Error)]
#[error("no tool `{0}` in this family")]
struct NotMine(ToolName);

impl<E: Send + Sync + 'static> Family<E> {
    pub fn new(origin: Origin, env: Arc<E>, tables: &[&'static [Entry<E>]]) -> Result<Self, BadTool> {
        let mut specs = Vec::new();
        let mut entries = Vec::new();
        for entry in tables.iter().copied().flatten() {
            let spec = (entry.spec)()?;
            entries.push((spec.name.clone(), entry));
            specs.push(Arc::new(spec));
        }
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Self { origin, env, specs: specs.into(), entries, changes: watch::Sender::new(0) })
    }
}

impl<E: Send + Sync + 'static> Provider for Family<E> {
    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn tools(&self) -> Arc<[Arc<ToolSpec>]> {
        self.specs.clone()
    }

    fn changes(&self) -> watch::Receiver<Revision> {
        self.changes.subscribe()
    }

    fn intend(&self, tool: &ToolName, args: &Arguments) -> ToolResult<Box<dyn Intent>> {
        match self.entries.binary_search_by(|(name, _)| name.cmp(tool)) {
            Ok(at) => (self.entries[at].1.intend)(self.env.clone(), args),
            Err(_) => Err(ToolError::internal(NotMine(tool.clone()))),
        }
    }
}
