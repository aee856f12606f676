//! A tool is a type: its fields are the arguments, its doc comment is what the model reads.

mod family;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::call::CallCx;
use crate::error::ToolResult;
use crate::name::{NodeName, ToolName};
use crate::principal::Principal;
use crate::redact;

pub use family::{Entry, Family, NotCovered};

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
