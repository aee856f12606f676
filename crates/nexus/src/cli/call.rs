//! `nexus call TOOL '{json}'`: one call, through the running hub like any other.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use nexus_core::session::Era;
use nexus_core::tasks::Tasks;

use super::hub::{self, Asks, Reach};
use super::person::{Keyboard, Person};
use super::waiting::{Place, Waiting};
use super::{print, say};
use crate::config::Loaded;
use crate::config::values::ApprovalMode;

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
        let watches = std::io::stderr().is_terminal();
        let asks = if watches && std::io::stdin().is_terminal() { Asks::Somebody } else { Asks::Nobody };
        // The old era's session ends with the call, and with it every code: it is for those who answer meanwhile.
        let era = match (asks, loaded.config.approval.mode) {
            (Asks::Somebody, ApprovalMode::Ask) => Era::Legacy,
            (Asks::Somebody | Asks::Nobody, _) => Era::Modern,
        };
        let client = Reach::find(&loaded, None, None)?.connect(asks, era, &Tasks::new(), None).await?;
        let person = Arc::new(Person::new(asks, watches && !self.json, Keyboard::new()));
        let result = hub::call(&client, &self.tool, &arguments, person.clone()).await;
        person.sees_the_end();
        let result = result?;
        client.close().await;
        let failed = result["isError"] == true;
        if self.json {
            print(&format!("{}\n", serde_json::to_string_pretty(&result)?))?;
        } else if let Some(waiting) = Waiting::of(&result) {
            let place = if client.server().era == Era::Legacy { Place::Nowhere } else { Place::Hub };
            waiting.told(place).iter().for_each(|line| say(line));
        } else if failed {
            say(&text_of(&result));
        } else {
            print(&readable(&result))?;
        }
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// The tool's own words where it has some; otherwise the structured reply, spread out, with texts as texts.
fn readable(result: &Value) -> String {
    let text = text_of(result);
    let has_words = !text.is_empty() && serde_json::from_str::<Value>(&text).is_err();
    let fields = match result["structuredContent"].as_object() {
        Some(fields) if !has_words => fields,
        _ => return format!("{text}\n"),
    };
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
