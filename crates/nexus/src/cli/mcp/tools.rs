//! `nexus mcp tools` and `nexus mcp allow`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::Value;

use nexus_core::text;

use super::{LONGEST_PIPED, one_line, print, say, told};
use crate::cli::repl::table;
use crate::config::Loaded;
use crate::upstreams::orders::McpOrder;

/// Characters of a description that the table shows.
const BRIEF: usize = 120;

#[derive(Debug, Args)]
pub struct Tools {
    /// Only those of this server
    server: Option<String>,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct Allow {
    /// The server's name in mcp.json
    server: String,
    /// Tools, by the server's names or ours; none: all that are held back
    tools: Vec<String>,
}

impl Tools {
    pub async fn run(self, loaded: &Loaded) -> Result<ExitCode> {
        let servers = told(loaded, McpOrder::Tools { name: self.server }).await?;
        if self.json {
            print(&format!("{servers:#}\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        let longest = if table::width().is_some() { BRIEF } else { LONGEST_PIPED };
        let (mut rows, mut held) = (Vec::new(), String::new());
        for server in servers.as_array().into_iter().flatten() {
            for tool in items(server, "tools") {
                let brief = text::cut(&one_line(word(tool, "description")), longest).into_owned();
                rows.push(vec![one_line(word(tool, "name")), one_line(word(tool, "original")), state(tool), brief]);
                held.push_str(&difference(server, tool));
            }
            for aside in items(server, "set_aside") {
                let why = format!("not offered: {}", one_line(word(aside, "why")));
                rows.push(vec!["-".to_owned(), one_line(word(aside, "tool")), "set aside".to_owned(), why]);
            }
        }
        let table = table::table(["tool", "the server's name", "", "what it says of itself"], rows);
        print(&format!("{table}\n{held}"))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Allow {
    pub async fn run(self, loaded: &Loaded) -> Result<ExitCode> {
        let servers = told(loaded, McpOrder::Tools { name: Some(self.server.clone()) }).await?;
        let mut seen: Vec<(String, String)> = Vec::new();
        let mut unknown = self.tools.clone();
        for server in servers.as_array().into_iter().flatten() {
            for tool in items(server, "tools").filter(|tool| word(tool, "state") == "held") {
                let names = [word(tool, "name"), word(tool, "original")];
                if !self.tools.is_empty() && !self.tools.iter().any(|wanted| names.contains(&wanted.as_str())) {
                    continue;
                }
                unknown.retain(|wanted| !names.contains(&wanted.as_str()));
                // What is allowed is what is shown here, not what it may become meanwhile.
                say(&difference(server, tool));
                seen.push((word(tool, "original").to_owned(), word(tool, "hash").to_owned()));
            }
        }
        if let Some(unknown) = unknown.first() {
            bail!("no tool `{}` of `{}` waits to be allowed", one_line(unknown), one_line(&self.server));
        }
        if seen.is_empty() {
            bail!("no tool of `{}` waits to be allowed", one_line(&self.server));
        }
        seen.sort_unstable();
        seen.dedup();
        let count = seen.len();
        told(loaded, McpOrder::Allow { name: self.server, seen }).await?;
        say(&format!("Allowed: {count} {}", if count == 1 { "tool" } else { "tools" }));
        Ok(ExitCode::SUCCESS)
    }
}

fn items<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

fn word<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn state(tool: &Value) -> String {
    if word(tool, "state") == "held" { "held back".to_owned() } else { String::new() }
}

/// What is different about a tool that is held back.
fn difference(server: &Value, tool: &Value) -> String {
    let Some(diff) = tool["diff"].as_str() else { return String::new() };
    let (server, tool) = (one_line(word(server, "server")), one_line(word(tool, "original")));
    format!("\n{server}: {tool}\n{}\n", text::clean(diff))
}
