//! `nexus call TOOL '{json}'`: one call, through the running hub like any other.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use nexus_core::text;
use nexus_mcp::client::Person;

use super::{print, say, tools};
use crate::config::Loaded;

#[derive(Debug, Args)]
pub struct Call {
    /// The tool's name
    tool: String,
    /// Its arguments, a JSON object
    #[arg(default_value = "{}", value_name = "JSON")]
    arguments: String,
    /// Print the whole result as JSON
    #[arg(long)]
    json: bool,
}

impl Call {
    pub async fn run(self, loaded: Loaded) -> Result<ExitCode> {
        let arguments: Value = serde_json::from_str(&self.arguments).context("the arguments are not JSON")?;
        if !arguments.is_object() {
            bail!("the arguments must be an object, for example '{}'", json!({ "path": "/etc/hostname" }));
        }
        let mut person = AtTheTerminal {
            watches: std::io::stderr().is_terminal() && !self.json,
            answers: std::io::stdin().is_terminal() && std::io::stderr().is_terminal(),
        };
        let client = tools::connect(&loaded, person.answers).await?;
        let result = client.call(&self.tool, &arguments, &mut person).await?;
        let failed = result["isError"] == true;
        if self.json {
            print(&format!("{}\n", serde_json::to_string_pretty(&result)?))?;
        } else if failed {
            say(&text_of(&result));
        } else {
            print(&readable(&result))?;
        }
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// The person at the terminal: sees what a tool says meanwhile, and can be asked.
struct AtTheTerminal {
    watches: bool,
    answers: bool,
}

impl Person for AtTheTerminal {
    fn hears(&mut self, message: &str) {
        if self.watches {
            say(&text::clean(message));
        }
    }

    fn asked(&mut self, form: &Value) -> Value {
        if !self.answers {
            return json!({ "action": "cancel" });
        }
        let offered = |word: &str| {
            let choices = form["requestedSchema"]["properties"]["decision"]["enum"].as_array();
            choices.is_some_and(|choices| choices.iter().any(|choice| choice == word))
        };
        let choices: Vec<_> = CHOICES.into_iter().filter(|(_, decision, _)| offered(decision)).collect();
        let words: Vec<String> = choices.iter().map(|(key, _, words)| format!("[{key}] {words}")).collect();
        say(&format!("{}\n{}", text::clean(form["message"].as_str().unwrap_or_default()), words.join("  ")));
        let mut typed = String::new();
        let read = std::io::stdin().read_line(&mut typed).unwrap_or(0);
        let typed = typed.trim().to_lowercase();
        match choices.iter().find(|(key, decision, _)| typed == *key || typed == *decision) {
            Some((_, decision, _)) => json!({ "action": "accept", "content": { "decision": decision } }),
            None if read == 0 => json!({ "action": "cancel" }),
            None => json!({ "action": "decline" }),
        }
    }
}

/// What is typed, what it means, and how it is shown.
const CHOICES: [(&str, &str, &str); 3] =
    [("y", "once", "yes, this once"), ("s", "session", "yes, and all writes of this session"), ("n", "no", "no")];

/// The structured reply, spread out, with texts as texts; or the plain text.
fn readable(result: &Value) -> String {
    let Some(fields) = result["structuredContent"].as_object() else { return format!("{}\n", text_of(result)) };
    let mut out = String::new();
    for (name, value) in fields {
        match value {
            Value::Null => {}
            Value::String(text) if text.contains('\n') => {
                out.push_str(&format!("{name}:\n{}\n", text.trim_end_matches('\n')));
            }
            Value::String(text) => out.push_str(&format!("{name}: {text}\n")),
            Value::Array(items) => match table(items) {
                Some(table) => out.push_str(&format!("{name}:\n{table}\n")),
                None => {
                    out.push_str(&format!("{name}:\n"));
                    items.iter().for_each(|item| out.push_str(&format!("  {}\n", cell(item))));
                }
            },
            other => out.push_str(&format!("{name}: {other}\n")),
        }
    }
    out
}

/// Objects as rows; a column for every field that one of them has.
fn table(items: &[Value]) -> Option<Table> {
    let rows: Vec<_> = items.iter().map(Value::as_object).collect::<Option<_>>()?;
    let mut columns: Vec<&String> = Vec::new();
    for name in rows.iter().flat_map(|row| row.keys()) {
        if !columns.contains(&name) {
            columns.push(name);
        }
    }
    if columns.is_empty() {
        return None;
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(columns.iter().copied());
    for row in rows {
        table.add_row(columns.iter().map(|name| row.get(*name).map_or_else(String::new, cell)));
    }
    Some(table)
}

/// A value in few characters: texts without their quotes, nothing for nothing.
fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn text_of(result: &Value) -> String {
    let blocks = result["content"].as_array().into_iter().flatten();
    blocks.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
}
