//! `nexus mcp import`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::{Value, json};

use nexus_core::{redact, text};

use super::file::{self, McpFile, Whose};
use super::{agrees, one_line, print, say};
use crate::config::mcp::Places;
use crate::config::mcp::import::{self, Found, Program};
use crate::config::{Config, Env, Loaded};

/// Characters of a command or an address that the table shows.
const BRIEF: usize = 80;

#[derive(Debug, Args)]
pub struct Import {
    /// Only from this program (may be given several times)
    #[arg(long, value_enum, value_name = "PROGRAM")]
    from: Vec<Program>,
    /// Write without being asked
    #[arg(long)]
    yes: bool,
    /// Print what was found as JSON, and write nothing
    #[arg(long, conflicts_with = "yes")]
    json: bool,
}

/// What becomes of one that was found.
enum Fate {
    New(Vec<String>),
    Not(String),
}

impl Import {
    pub fn run(self, loaded: &Loaded, env: &Env) -> Result<ExitCode> {
        let places = Places::of(&loaded.config, env)?;
        let programs = if self.from.is_empty() { Program::ALL.to_vec() } else { self.from.clone() };
        let finds = import::find(&programs, &places, env);
        for problem in &finds.problems {
            say(&format!("Not read: {}", one_line(problem)));
        }
        let mut file = McpFile::open(&places, Whose::Home)?;
        let mut fates = Vec::new();
        for found in &finds.servers {
            fates.push(fate(found, &mut file, &loaded.config, env)?);
        }
        let new = fates.iter().filter(|fate| matches!(fate, Fate::New(_))).count();
        if self.json {
            print(&format!("{:#}\n", told(&finds.servers, &fates)))?;
            return Ok(ExitCode::SUCCESS);
        }
        if finds.servers.is_empty() {
            say("No servers of other programs were found.");
            return Ok(ExitCode::SUCCESS);
        }
        print(&format!("{}\n", table(&finds.servers, &fates)))?;
        let place = file.path.display().to_string();
        if new == 0 {
            say(&format!("Nothing is new for {place}."));
        } else if self.yes || agrees(&format!("Write {new} of them to {place}?"))? {
            file.save()?;
            say(&format!("{new} servers were written to {place}. A running hub starts them within a second."));
        } else {
            say(&format!("Nothing was written. `nexus mcp import --yes` writes {new} of them to {place}."));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Puts one that is new into the text of the file.
fn fate(found: &Found, file: &mut McpFile, config: &Config, env: &Env) -> Result<Fate> {
    if is_this_hub(&found.entry, config) {
        return Ok(Fate::Not("this hub itself".to_owned()));
    }
    if file.has(&found.name)? {
        return Ok(Fate::Not("there already".to_owned()));
    }
    file.put(&found.name, &found.entry)?;
    match file::check(file, &found.name, env) {
        Ok(warnings) => {
            let short = warnings.iter().filter_map(|warning| warning.lines().next()?.rsplit(": ").next());
            Ok(Fate::New(found.notes.iter().cloned().chain(short.map(str::to_owned)).collect()))
        }
        Err(error) => {
            file.take(&found.name)?;
            let why = error.to_string();
            let why = why.lines().nth(1).and_then(|line| line.split(": ").nth(1)).unwrap_or("faulty").to_owned();
            Ok(Fate::Not(why))
        }
    }
}

/// A hub that is its own upstream would call itself for ever.
fn is_this_hub(entry: &Value, config: &Config) -> bool {
    let command = match &entry["command"] {
        Value::Array(words) => words.iter().filter_map(Value::as_str).collect(),
        command => command
            .as_str()
            .into_iter()
            .chain(entry["args"].as_array().into_iter().flatten().filter_map(Value::as_str))
            .collect::<Vec<_>>(),
    };
    let program = command.first().and_then(|program| Path::new(program).file_name()?.to_str());
    if program == Some("nexus") && command.contains(&"stdio") {
        return true;
    }
    let port = config.server.http_port;
    let ours = ["127.0.0.1", "localhost", "[::1]"].map(|host| format!("http://{host}:{port}/"));
    entry["url"].as_str().is_some_and(|url| ours.iter().any(|ours| url.starts_with(ours.as_str())))
}

fn table(servers: &[Found], fates: &[Fate]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["server", "from", "what", ""]);
    for (found, fate) in servers.iter().zip(fates) {
        let fate = match fate {
            Fate::New(notes) if notes.is_empty() => "new".to_owned(),
            Fate::New(notes) => format!("new; {}", notes.join("; ")),
            Fate::Not(why) => format!("left out: {why}"),
        };
        table.add_row([one_line(&found.name), found.program.name().to_owned(), what(&found.entry), one_line(&fate)]);
    }
    table
}

/// The command or the address, without secrets.
fn what(entry: &Value) -> String {
    let words = [&entry["command"], &entry["args"], &entry["url"]];
    let words = words.into_iter().flat_map(|words| match words {
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
        word => word.as_str().into_iter().collect::<Vec<_>>(),
    });
    let words = words.collect::<Vec<_>>().join(" ");
    text::cut(&one_line(&redact::text(&words)), BRIEF).into_owned()
}

fn told(servers: &[Found], fates: &[Fate]) -> Value {
    let told = |(found, fate): (&Found, &Fate)| {
        let (new, notes) = match fate {
            Fate::New(notes) => (true, json!(notes)),
            Fate::Not(why) => (false, json!([why])),
        };
        json!({
            "name": found.name, "program": found.program.name(), "file": found.file, "what": what(&found.entry),
            "new": new, "notes": notes,
        })
    };
    servers.iter().zip(fates).map(told).collect()
}
