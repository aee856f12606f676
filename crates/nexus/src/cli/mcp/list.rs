//! `nexus mcp list` and `nexus mcp logs`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use nexus_core::text::cut;
use nexus_mcp::upstream::supervisor::{endpoint_of, source_of};

use super::{LONGEST_CELL, LONGEST_PIPED, one_line, print, say, told};
use crate::cli::repl::table;
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
        let (rows, faults, warnings) = if hold::holder(&loaded.data).is_some() {
            let mut told = told(loaded, McpOrder::List).await?;
            (told["servers"].take(), texts(&told["faults"]), texts(&told["warnings"]))
        } else {
            let reading = mcp::read(&Places::of(&loaded.config, env)?, &mcp::allow_private(&loaded.config), env);
            (configured(&reading), reading.faults, reading.warnings)
        };
        for words in faults.iter().chain(&warnings) {
            say(&format!("{words}\n"));
        }
        if self.json {
            print(&format!("{rows:#}\n"))?;
        } else if rows.as_array().is_none_or(Vec::is_empty) {
            say("No upstream servers are configured. `nexus mcp add` and `nexus mcp import` make entries.");
        } else {
            print(&format!("{}\n", shown(&rows)))?;
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
            shown.push_str(&format!("{} {from:>6}  {}\n", table::moment(at), one_line(text)));
        }
        print(&shown)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// What the files say, where no hub runs.
fn configured(reading: &Reading) -> Value {
    let servers = reading.servers.iter().map(|(name, server)| {
        let why = match server.config.enabled {
            true => "no hub is running".to_owned(),
            false => server.switched_off().unwrap_or_else(|| "it is switched off in its entry".to_owned()),
        };
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

/// One line each; `--json` has everything.
fn shown(rows: &Value) -> String {
    let longest = if table::width().is_some() { LONGEST_CELL } else { LONGEST_PIPED };
    let text = |row: &Value, field: &str| one_line(row[field].as_str().unwrap_or("-"));
    let rows = rows.as_array().into_iter().flatten().map(|row| {
        let (held, aside) = (count(&row["held"]), count(&row["set_aside"]));
        let mut tools = row["tools"].to_string();
        for (count, word) in [(held, "held"), (aside, "set aside")] {
            if count > 0 {
                tools.push_str(&format!(", {count} {word}"));
            }
        }
        let mut notes: Vec<String> = Vec::new();
        notes.extend(row["visibility"].as_str().filter(|seen| *seen != "shared").map(one_line));
        notes.extend(row["next_try"].as_str().map(|at| format!("next try at {}", table::moment(at))));
        notes
            .extend(row["fault"].as_str().map(|why| format!("runs as before, its entry is faulty: {}", one_line(why))));
        notes.extend(row["why"].as_str().or_else(|| row["endpoint"].as_str()).map(one_line));
        let notes = cut(&notes.join("; "), longest).into_owned();
        vec![text(row, "name"), text(row, "state"), tools, text(row, "era"), notes]
    });
    table::table(["server", "state", "tools", "era", "why or where"], rows)
}

fn count(list: &Value) -> usize {
    list.as_array().map_or(0, Vec::len)
}
