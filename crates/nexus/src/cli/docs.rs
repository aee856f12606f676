//! `nexus docs`: the reference pages, written from the program itself.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory};
use serde_json::Value;

use nexus_core::approval::{self, Approvals, Mode};
use nexus_core::audit::Nowhere;
use nexus_core::provider::Provider;
use nexus_core::tool::{Access, Listed, ToolSpec};

use super::{Cli, say};
use crate::agents;
use crate::audit::log;
use crate::config::{self, Env};
use crate::wire;

#[derive(Debug, Args)]
pub struct Docs {
    /// Folder to write into
    #[arg(default_value = "docs/reference")]
    folder: PathBuf,
    /// Write nothing; fail if a page is not what it should be
    #[arg(long)]
    check: bool,
}

impl Docs {
    #[allow(clippy::disallowed_methods, reason = "these pages are no secrets, and git has the old ones")]
    pub fn run(&self) -> Result<ExitCode> {
        let mut stale = Vec::new();
        for (name, text) in pages()? {
            let path = self.folder.join(name);
            if std::fs::read_to_string(&path).is_ok_and(|present| present == text) {
                continue;
            }
            if self.check {
                stale.push(path.display().to_string());
                continue;
            }
            std::fs::create_dir_all(&self.folder).with_context(|| format!("the folder {}", self.folder.display()))?;
            std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
            say(&format!("wrote {}", path.display()));
        }
        if stale.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        say(&format!("out of date: {}; run `nexus docs`", stale.join(", ")));
        Ok(ExitCode::FAILURE)
    }
}

/// All pages: file name and text.
fn pages() -> Result<Vec<(&'static str, String)>> {
    Ok(vec![
        ("cli.md", command_line()),
        ("configuration.md", config::reference()),
        ("mcp-json.md", config::mcp::fields::reference()),
        ("tools.md", tools()?),
    ])
}

const MADE: &str = "<!-- Written by `nexus docs`; a test keeps it true. -->\n";

fn command_line() -> String {
    let mut out = format!("# Command line\n\n{MADE}");
    let mut root = Cli::command().term_width(100);
    root.build();
    describe(&mut root, &mut out);
    out
}

fn describe(command: &mut clap::Command, out: &mut String) {
    let path = command.get_bin_name().unwrap_or("nexus").to_owned();
    let help = command.render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    let _ = write!(out, "\n## {path}\n\n```text\n{}\n```\n", help.join("\n").trim_end());
    for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help") {
        describe(sub, out);
    }
}

fn tools() -> Result<String> {
    let mut out = format!("# Tools\n\n{MADE}\nReads are free. A write of a `trusted` key waits for the operator.\n");
    let env = Env::default();
    let loaded = config::load(None, Some(Path::new("/nonexistent")), &env)?;
    let family = wire::built_in(&loaded.config, &loaded.data, &env)?;
    let gate = approval::tools(Arc::new(Approvals::new(Mode::Ask, Arc::new(Nowhere))))?;
    let mut specs: Vec<_> = family.tools().iter().chain(gate.tools().iter()).cloned().collect();
    for entry in log::TOOLS {
        specs.push(Arc::new(entry.spec()?));
    }
    for entry in nexus_mcp::upstream::tools::TOOLS {
        specs.push(Arc::new(entry.spec()?));
    }
    for entry in nexus_link::tools::TOOLS {
        specs.push(Arc::new(entry.spec()?));
    }
    for entry in agents::tools::FOR_MODELS.iter().chain(agents::tools::FOR_AGENTS) {
        specs.push(Arc::new(entry.spec()?));
    }
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    for spec in specs {
        tool(&spec, &mut out);
    }
    Ok(out)
}

fn tool(spec: &ToolSpec, out: &mut String) {
    let access = match spec.most {
        Access::Read => "read",
        Access::ReadLogged => "read, recorded with care",
        Access::Write => "write",
    };
    let whom = match spec.listed {
        Listed::Everyone | Listed::Nobody => "",
        Listed::Agents => ", for agents",
    };
    let _ = write!(out, "\n## {}\n\n*{access}{whom}*\n\n{}\n", spec.name, spec.description);
    let required: Vec<&str> =
        spec.input.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let fields = spec.input.get("properties").and_then(Value::as_object);
    if fields.is_some_and(|fields| !fields.is_empty()) {
        out.push_str("\n| argument | type | |\n|---|---|---|\n");
    }
    for (name, schema) in fields.into_iter().flatten() {
        let kind = kind_of(schema);
        let optional = if required.contains(&name.as_str()) { "" } else { ", optional" };
        let text = schema["description"].as_str().unwrap_or_default().replace('\n', " ");
        let _ = writeln!(out, "| `{name}` | {kind}{optional} | {text} |");
    }
}

fn kind_of(schema: &Value) -> String {
    match &schema["type"] {
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => {
            kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").collect::<Vec<_>>().join(" or ")
        }
        _ => "value".to_owned(),
    }
}
