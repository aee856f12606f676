//! `nexus mcp import`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use nexus_core::{redact, text};

use super::file::{self, McpFile};
use super::{LONGEST_PIPED, agrees, one_line, print, say};
use crate::cli::repl::table;
use crate::config::mcp::Places;
use crate::config::mcp::import::{self, Found, Program, Whose};
use crate::config::{Env, Loaded};
use crate::hold;

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
        let mut files = Files::open(&places)?;
        let ours = addresses(loaded);
        let mut fates = Vec::new();
        for found in &finds.servers {
            fates.push(files.take_over(found, &ours, env)?);
        }
        if self.json {
            print(&format!("{:#}\n", told(&finds.servers, &fates)))?;
            return Ok(ExitCode::SUCCESS);
        }
        if finds.servers.is_empty() {
            say("No servers of other programs were found.");
            return Ok(ExitCode::SUCCESS);
        }
        print(&format!("{}\n", shown(&finds.servers, &fates, &places)))?;
        let new = |whose: Whose| {
            let of_them = finds.servers.iter().zip(&fates).filter(|(found, _)| found.whose == whose);
            of_them.filter(|(_, fate)| matches!(fate, Fate::New(_))).count()
        };
        let (own, project) = (new(Whose::Person), new(Whose::Project));
        let places = files.places(own, project);
        if own + project == 0 {
            say("Nothing is new.");
        } else if self.yes || agrees(&format!("Write {places}?"))? {
            files.save(own, project)?;
            say(&format!("Written: {places}."));
            if own > 0 {
                say("A running hub starts those of your own within a second.");
            }
            if project > 0 {
                say(
                    "Those of the project wait for a yes each, where the hub runs in this folder: `nexus mcp connect NAME`.",
                );
            }
        } else {
            say(&format!("Nothing was written. `nexus mcp import --yes` writes {places}."));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What is the person's own goes to their file, what a project brings to the project's, where it waits for a yes.
struct Files {
    home: McpFile,
    project: McpFile,
}

impl Files {
    fn open(places: &Places) -> Result<Self> {
        let project = McpFile::open(places, file::Whose::Project)?;
        Ok(Self { home: McpFile::open(places, file::Whose::Home)?, project })
    }

    /// Puts one that is new into the text of its file.
    fn take_over(&mut self, found: &Found, ours: &[String], env: &Env) -> Result<Fate> {
        if is_this_hub(&found.entry, ours) {
            return Ok(Fate::Not("this hub itself".to_owned()));
        }
        if self.home.has(&found.name)? || (found.whose == Whose::Project && self.project.has(&found.name)?) {
            return Ok(Fate::Not("there already".to_owned()));
        }
        match found.whose {
            Whose::Person => fate(found, &mut self.home, env),
            Whose::Project => fate(found, &mut self.project, env),
        }
    }

    /// How many go where, in words.
    fn places(&self, own: usize, project: usize) -> String {
        let parts = [(own, &self.home), (project, &self.project)].into_iter().filter(|(count, _)| *count > 0);
        parts.map(|(count, file)| format!("{count} to {}", file.path.display())).collect::<Vec<_>>().join(" and ")
    }

    fn save(&self, own: usize, project: usize) -> Result<()> {
        for (_, file) in [(own, &self.home), (project, &self.project)].into_iter().filter(|(count, _)| *count > 0) {
            file.save()?;
        }
        Ok(())
    }
}

fn fate(found: &Found, file: &mut McpFile, env: &Env) -> Result<Fate> {
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

/// Where this hub is reached from this machine: where it is configured to be, and where it runs now.
fn addresses(loaded: &Loaded) -> Vec<String> {
    let running = hold::holder(&loaded.data).and_then(|holder| holder.mcp);
    let running = running.and_then(|mcp| mcp.trim_end_matches("/mcp").rsplit_once(':')?.1.parse().ok());
    let ports: Vec<u16> = [Some(loaded.config.server.http_port), running].into_iter().flatten().collect();
    let hosts = ["127.0.0.1", "localhost", "[::1]"];
    let local = ports.iter().flat_map(|port| hosts.map(|host| format!("http://{host}:{port}/")));
    let public = loaded.config.server.public_url.as_ref().map(|url| format!("{}/", url.as_ref().trim_end_matches('/')));
    local.chain(public).collect()
}

/// A hub that is its own upstream would call itself for ever.
fn is_this_hub(entry: &Value, ours: &[String]) -> bool {
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
    entry["url"].as_str().is_some_and(|url| ours.iter().any(|ours| url.starts_with(ours.as_str())))
}

fn shown(servers: &[Found], fates: &[Fate], places: &Places) -> String {
    let longest = if table::width().is_some() { BRIEF } else { LONGEST_PIPED };
    let rows = servers.iter().zip(fates).map(|(found, fate)| {
        let fate = match fate {
            Fate::New(notes) if notes.is_empty() => "new".to_owned(),
            Fate::New(notes) => format!("new; {}", notes.join("; ")),
            Fate::Not(why) => format!("left out: {why}"),
        };
        let from = format!("{}, {}", found.program.name(), one_line(&short(&found.file, places)));
        let what = text::cut(&what(&found.entry), longest).into_owned();
        vec![one_line(&found.name), from, what, text::cut(&one_line(&fate), longest).into_owned()]
    });
    table::table(["server", "from", "what", ""], rows)
}

/// A file as a person would write it.
fn short(file: &Path, places: &Places) -> String {
    if let Ok(rest) = file.strip_prefix(&places.here) {
        return format!("./{}", rest.display());
    }
    match places.home.as_ref().and_then(|home| file.strip_prefix(home).ok()) {
        Some(rest) => format!("~/{}", rest.display()),
        None => file.display().to_string(),
    }
}

/// The command or the address, without secrets.
fn what(entry: &Value) -> String {
    let words = [&entry["command"], &entry["args"], &entry["url"]];
    let words = words.into_iter().flat_map(|words| match words {
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
        word => word.as_str().into_iter().collect::<Vec<_>>(),
    });
    let words = words.collect::<Vec<_>>().join(" ");
    one_line(&redact::text(&words))
}

fn told(servers: &[Found], fates: &[Fate]) -> Value {
    let told = |(found, fate): (&Found, &Fate)| {
        let (new, notes) = match fate {
            Fate::New(notes) => (true, json!(notes)),
            Fate::Not(why) => (false, json!([why])),
        };
        json!({
            "name": found.name, "program": found.program.name(), "file": found.file, "what": what(&found.entry),
            "whose": match found.whose { Whose::Person => "home", Whose::Project => "project" },
            "new": new, "notes": notes,
        })
    };
    servers.iter().zip(fates).map(told).collect()
}
