//! `nexus tools`: what the running hub offers.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

use nexus_core::tasks::Tasks;
use nexus_mcp::client::{Client, ClientError};

use super::print;
use crate::config::Loaded;
use crate::{hold, keyring};

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
        let mut tools = connect(&loaded, false).await?.tools().await?;
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

/// A connection to the hub of this data folder, with the key that is kept there. `asks`: there is somebody to ask.
pub async fn connect(loaded: &Loaded, asks: bool) -> Result<Client> {
    let running = hold::holder(&loaded.data);
    let url = match running {
        Some(hold::Holder { mcp: Some(mcp), .. }) => mcp,
        _ => bail!("no hub is serving the data folder {}; start one with `nexus`", loaded.data.display()),
    };
    let Some(key) = keyring::stored_key(&loaded.config, &loaded.data)? else {
        bail!("this command needs a key: MCP_API_KEY, or the one a hub without configured keys makes itself");
    };
    match Client::connect(&url, &key, Tasks::new(), asks).await {
        Err(ClientError::WrongKey) => {
            bail!("the hub at {url} does not take this key; is MCP_API_KEY the one it was started with?")
        }
        connected => connected.with_context(|| format!("talking to the hub at {url}")),
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
