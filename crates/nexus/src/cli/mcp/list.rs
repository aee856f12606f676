//! `nexus mcp list` and `nexus mcp logs`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::{Value, json};

use nexus_mcp::upstream::supervisor::{endpoint_of, source_of};

use super::{one_line, print, say, told};
use crate::config::mcp::{self, Places, Reading};
use crate::config::{Env, Loaded};
use crate::hold;
use crate::upstreams::orders::McpOrder;

#[derive(Debug, Args)]
pub struct List {
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct Logs {
    /// The server's name in mcp.json
    name: String,
    /// The last so many lines
    #[arg(long, short = 'n', default_value_t = 100)]
    lines: usize,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

impl List {
    pub async fn run(self, loaded: &Loaded, env: &Env) -> Result<ExitCode> {
        let rows = if hold::holder(&loaded.data).is_some() {
            told(loaded, McpOrder::List).await?
        } else {
            let reading = mcp::read(&Places::of(&loaded.config, env)?, &mcp::allow_private(&loaded.config), env);
            for words in reading.faults.iter().chain(&reading.warnings) {
                say(&format!("{words}\n"));
            }
            configured(&reading)
        };
        if self.json {
            print(&format!("{rows:#}\n"))?;
        } else if rows.as_array().is_none_or(Vec::is_empty) {
            say("No upstream servers are configured. `nexus mcp add` and `nexus mcp import` make entries.");
        } else {
            print(&format!("{}\n", table(&rows)))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Logs {
    pub async fn run(self, loaded: &Loaded) -> Result<ExitCode> {
        let lines = told(loaded, McpOrder::Logs { name: self.name, lines: self.lines }).await?;
        if self.json {
            print(&format!("{lines:#}\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut shown = String::new();
        for line in lines.as_array().into_iter().flatten() {
            let at = line["at"].as_str().unwrap_or_default();
            let (from, text) = (line["from"].as_str().unwrap_or_default(), line["text"].as_str().unwrap_or_default());
            shown.push_str(&format!("{} {from:>6}  {}\n", at.get(..19).unwrap_or(at), one_line(text)));
        }
        print(&shown)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What the files say, where no hub runs.
fn configured(reading: &Reading) -> Value {
    let servers = reading.servers.iter().map(|(name, server)| {
        let why = if server.config.enabled { "no hub is running" } else { "it is switched off in its entry" };
        json!({
            "name": name, "state": "stopped", "why": why, "endpoint": endpoint_of(&server.config),
            "source": source_of(&server.config), "tools": 0,
        })
    });
    let broken = reading.broken.iter().map(|(name, broken)| {
        let source = format!("{}:{}", broken.file.display(), broken.line);
        json!({ "name": name, "state": "faulty", "why": broken.why, "source": source, "tools": 0 })
    });
    servers.chain(broken).collect()
}

fn table(rows: &Value) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["server", "state", "tools", "era", "where", "from", ""]);
    let text = |row: &Value, field: &str| one_line(row[field].as_str().unwrap_or("-"));
    for row in rows.as_array().into_iter().flatten() {
        let held = row["held"].as_array().map_or(0, Vec::len);
        let aside = row["set_aside"].as_array().map_or(0, Vec::len);
        let mut tools = row["tools"].to_string();
        for (count, word) in [(held, "held"), (aside, "set aside")] {
            if count > 0 {
                tools.push_str(&format!(", {count} {word}"));
            }
        }
        let mut notes: Vec<String> = Vec::new();
        notes.extend(row["visibility"].as_str().filter(|seen| *seen != "shared").map(one_line));
        notes.extend(row["why"].as_str().map(one_line));
        notes.extend(row["next_try"].as_str().map(|at| format!("next try at {}", at.get(..19).unwrap_or(at))));
        notes.extend(
            row["fault"].as_str().map(|fault| format!("runs as before, its entry is faulty: {}", one_line(fault))),
        );
        table.add_row([
            text(row, "name"),
            text(row, "state"),
            tools,
            text(row, "era"),
            text(row, "endpoint"),
            text(row, "source"),
            notes.join("; "),
        ]);
    }
    table
}
