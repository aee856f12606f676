//! What the REPL knows of the hub while a line is typed: tools, their arguments, servers, codes.

use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::Value;

use super::show::one_line;

/// Characters of a description beside a completion.
const LONGEST_ABOUT: usize = 100;

/// Waiting calls whose codes are remembered.
const MOST_CODES: usize = 20;

#[derive(Clone, Debug, Default)]
pub struct Known {
    pub tools: Vec<Arc<KnownTool>>,
    pub servers: Vec<String>,
    /// Of calls that wait for a yes, the newest first.
    pub codes: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct KnownTool {
    pub name: String,
    pub about: String,
    /// The server it comes from, if it is not the hub's own.
    pub server: Option<String>,
    pub arguments: Vec<Argument>,
    /// As the hub lists it.
    pub definition: Arc<Value>,
}

#[derive(Clone, Debug)]
pub struct Argument {
    pub name: String,
    pub about: String,
    pub required: bool,
    /// The values it may have, where they are few.
    pub values: Vec<String>,
}

/// Shared between the one who types and the one who hears of changes.
#[derive(Clone, Debug, Default)]
pub struct Shared(Arc<RwLock<Arc<Known>>>);

impl Shared {
    pub fn get(&self) -> Arc<Known> {
        self.0.read().clone()
    }

    pub fn change(&self, change: impl FnOnce(&mut Known)) {
        let mut known = Known::clone(&self.get());
        change(&mut known);
        *self.0.write() = Arc::new(known);
    }
}

impl Known {
    pub fn tool(&self, name: &str) -> Option<&KnownTool> {
        self.tools.iter().find(|tool| tool.name == name).map(|tool| &**tool)
    }

    pub fn remember(&mut self, code: &str) {
        self.codes.retain(|known| known != code);
        self.codes.insert(0, code.to_owned());
        self.codes.truncate(MOST_CODES);
    }

    /// Takes over a listing. Servers come from it where nobody has told of them better.
    pub fn listed(&mut self, tools: Vec<Value>) {
        self.tools = tools.into_iter().filter_map(KnownTool::of).map(Arc::new).collect();
        for server in self.tools.iter().filter_map(|tool| tool.server.as_ref()) {
            if !self.servers.contains(server) {
                self.servers.push(server.clone());
            }
        }
    }
}

impl KnownTool {
    fn of(tool: Value) -> Option<Self> {
        let schema = &tool["inputSchema"];
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut arguments: Vec<Argument> = schema["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, _)| is_plain(name))
            .map(|(name, field)| Argument {
                name: name.clone(),
                about: one_line(string(&field["description"]), LONGEST_ABOUT),
                required: required.contains(&name.as_str()),
                values: values(field),
            })
            .collect();
        arguments.sort_by_key(|argument| !argument.required);
        let about = string(&tool["description"]);
        Some(Self {
            name: tool["name"].as_str().filter(|name| is_plain(name))?.to_owned(),
            about: one_line(about.lines().next().unwrap_or_default(), LONGEST_ABOUT),
            server: server_of(about),
            arguments,
            definition: Arc::new(tool),
        })
    }
}

/// The description of an upstream's tool begins with where it comes from.
pub fn server_of(description: &str) -> Option<String> {
    let (server, _) = description.strip_prefix("[MCP:")?.split_once(']')?;
    Some(one_line(server, LONGEST_ABOUT))
}

/// What a person would not type is not completed, and what would play with the terminal never is.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$'))
}

fn values(field: &Value) -> Vec<String> {
    if field["type"] == "boolean" {
        return vec!["true".to_owned(), "false".to_owned()];
    }
    field["enum"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .filter(|value| is_plain(value))
        .map(str::to_owned)
        .collect()
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
