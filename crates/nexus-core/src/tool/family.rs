//! How a tool that is a type becomes one that can be listed and called: its schema, its intent, and the family that
//! offers it.

use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use thiserror::Error;
use tokio::sync::watch;

use super::{Access, BadTool, Definition, Tool, ToolSpec};
use crate::arguments::Arguments;
use crate::call::CallCx;
use crate::error::{ToolError, ToolResult};
use crate::gate::Permit;
use crate::name::{NodeName, ToolName};
use crate::provider::{Intent, Origin, Provider, Revision};
use crate::reply::Reply;

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
