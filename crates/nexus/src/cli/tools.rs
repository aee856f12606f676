//! `nexus tools`: what the running hub offers.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

use nexus_core::tasks::Tasks;

use super::hub::{self, Asks, Reach};
use super::print;
use crate::config::Loaded;

#[derive(Debug, Args)]
pub struct Tools {
    /// Show this one tool with its arguments
    name: Option<String>,
    /// Print the definitions as JSON
    #[arg(long)]
    json: bool,
}

impl Tools {
    pub async fn run(self, loaded: Loaded) -> Result<ExitCode> {
        let client = Reach::find(&loaded, None, None)?.connect(Asks::Nobody, &Tasks::new(), None).await?;
        let mut tools = hub::tools(&client).await?;
        client.close().await;
        if let Some(name) = &self.name {
            tools.retain(|tool| tool["name"] == name.as_str());
            if tools.is_empty() {
                bail!("the hub has no tool `{name}`; `nexus tools` lists all");
            }
        }
        match (self.json, self.name) {
            (true, _) => print(&format!("{}\n", serde_json::to_string_pretty(&tools)?))?,
            (false, None) => print(&format!("{}\n", table(&tools)))?,
            (false, Some(_)) => print(&describe(&tools[0]))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn table(tools: &[Value]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["tool", "access", "what it does"]);
    for tool in tools {
        let access = if tool["annotations"]["readOnlyHint"] == true { "read" } else { "write" };
        let first = text(&tool["description"]).lines().next().unwrap_or_default().to_owned();
        table.add_row([text(&tool["name"]), access, &first]);
    }
    table
}

fn describe(tool: &Value) -> String {
    let mut out = format!("{}: {}\n\n{}\n", text(&tool["name"]), text(&tool["title"]), text(&tool["description"]));
    let schema = &tool["inputSchema"];
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let required =
            schema["required"].as_array().is_some_and(|required| required.iter().any(|r| r == name.as_str()));
        let mark = if required { "" } else { " (optional)" };
        out.push_str(&format!("\n  {name}{mark}: {}", text(&field["description"])));
    }
    out.push('\n');
    out
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
