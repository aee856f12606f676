//! What other programs on this machine have configured, as entries of ours.

mod convert;
mod toml;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::json;
use super::layers::{self, Content, Places};
use crate::config::env::Env;

/// Bytes. Claude Code keeps its history in the same file.
const LARGEST_FILE: u64 = 64 * 1024 * 1024;

/// A program whose servers are taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Program {
    ClaudeCode,
    ClaudeDesktop,
    Codex,
    Cursor,
    #[value(name = "vscode")]
    VsCode,
    Opencode,
    Nexus3,
}

impl Program {
    pub const ALL: [Program; 7] = [
        Program::ClaudeCode,
        Program::ClaudeDesktop,
        Program::Codex,
        Program::Cursor,
        Program::VsCode,
        Program::Opencode,
        Program::Nexus3,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Program::ClaudeCode => "Claude Code",
            Program::ClaudeDesktop => "Claude Desktop",
            Program::Codex => "Codex",
            Program::Cursor => "Cursor",
            Program::VsCode => "VS Code",
            Program::Opencode => "opencode",
            Program::Nexus3 => "NEXUS3",
        }
    }

    /// Behind a name that two programs have given to different servers.
    fn suffix(self) -> &'static str {
        match self {
            Program::ClaudeCode => "claude-code",
            Program::ClaudeDesktop => "claude-desktop",
            Program::Codex => "codex",
            Program::Cursor => "cursor",
            Program::VsCode => "vscode",
            Program::Opencode => "opencode",
            Program::Nexus3 => "nexus3",
        }
    }
}

/// One server that another program has.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub program: Program,
    pub file: PathBuf,
    pub whose: Whose,
    pub name: String,
    /// As ours.
    pub entry: Value,
    /// What could not be taken over.
    pub notes: Vec<String>,
}

/// Who wrote a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    Person,
    /// Whoever has written the project: what it says becomes no entry of the person's own.
    Project,
}

/// Everything that was found, and files that could not be read.
#[derive(Debug, Default)]
pub struct Finds {
    pub servers: Vec<Found>,
    pub problems: Vec<String>,
}

/// Looks at the files of these programs.
pub fn find(programs: &[Program], places: &Places, env: &Env) -> Finds {
    let mut finds = Finds::default();
    for program in programs {
        for (file, whose) in files(*program, places, env) {
            match layers::read(&file, LARGEST_FILE) {
                Content::Absent => {}
                Content::Unreadable(problem) => {
                    finds.problems.push(format!("{}: {}", file.display(), problem.what()));
                }
                Content::Text(text) => match tree(&file, &text) {
                    Ok(root) => finds.add(*program, &file, whose, &root, places, env),
                    Err(problem) => finds.problems.push(format!("{}:{problem}", file.display())),
                },
            }
        }
    }
    finds.tell_apart();
    finds
}

impl Finds {
    fn add(&mut self, program: Program, file: &Path, whose: Whose, root: &Value, places: &Places, env: &Env) {
        let folder = match (whose, &places.home) {
            (Whose::Person, Some(home)) => home,
            (Whose::Person, None) | (Whose::Project, _) => &places.here,
        };
        let around = convert::Around { program, folder, home: env.home() };
        for (name, entry) in entries(program, root, places) {
            let (entry, notes) = convert::entry(entry, &around);
            let found = Found { program, file: file.to_owned(), whose, name: name.to_owned(), entry, notes };
            self.servers.push(found);
        }
    }

    /// The same server under the same name is found once; another one of that name gets one of its own.
    fn tell_apart(&mut self) {
        // The person's own first: a project takes no name from them.
        self.servers.sort_by_key(|found| found.whose == Whose::Project);
        let mut kept: Vec<Found> = Vec::new();
        for mut found in std::mem::take(&mut self.servers) {
            if kept.iter().any(|known| known.name == found.name && known.entry == found.entry) {
                continue;
            }
            if kept.iter().any(|known| known.name == found.name) {
                found.notes.push(format!("`{}` is another server's name already", found.name));
                found.name = format!("{}-{}", found.name, found.program.suffix());
            }
            if !kept.iter().any(|known| known.name == found.name) {
                kept.push(found);
            }
        }
        self.servers = kept;
    }
}

/// Where a program keeps its servers.
fn files(program: Program, places: &Places, env: &Env) -> Vec<(PathBuf, Whose)> {
    let home = places.home.clone().unwrap_or_default();
    let config = env.config_home().unwrap_or_else(|| home.join(".config"));
    let mac = home.join("Library/Application Support");
    let mut files: Vec<PathBuf> = Vec::new();
    match program {
        Program::ClaudeCode => {
            files.extend(env.variable("CLAUDE_CONFIG_DIR").map(|folder| Path::new(&folder).join(".claude.json")));
            files.push(home.join(".claude.json"));
        }
        Program::ClaudeDesktop => {
            files.extend([&config, &mac].map(|folder| folder.join("Claude/claude_desktop_config.json")));
        }
        Program::Codex => {
            let folder = env.variable("CODEX_HOME").map_or_else(|| home.join(".codex"), PathBuf::from);
            files.push(folder.join("config.toml"));
        }
        Program::Cursor => files.push(home.join(".cursor/mcp.json")),
        Program::VsCode => {
            for name in ["Code", "Code - Insiders", "VSCodium"] {
                let users = [&config, &mac].map(|folder| folder.join(name).join("User"));
                files.extend(users.iter().flat_map(|user| [user.join("mcp.json"), user.join("settings.json")]));
            }
        }
        Program::Opencode => {
            let names = ["opencode.json", "opencode.jsonc", "config.json"];
            files.extend(names.map(|name| config.join("opencode").join(name)));
        }
        Program::Nexus3 => files.extend(["mcp.json", "config.json"].map(|name| home.join(".nexus3").join(name))),
    }
    let mut files: Vec<(PathBuf, Whose)> = files.into_iter().map(|file| (file, Whose::Person)).collect();
    let here: &[&str] = match program {
        Program::Cursor => &[".cursor/mcp.json"],
        Program::VsCode => &[".vscode/mcp.json"],
        Program::Opencode => &["opencode.json", "opencode.jsonc"],
        Program::Nexus3 => &[".nexus3/mcp.json", ".nexus3/config.json"],
        Program::Codex => &[".codex/config.toml"],
        // Its file of a project is a layer of ours.
        Program::ClaudeCode | Program::ClaudeDesktop => &[],
    };
    let is_home = places.home.as_ref().is_some_and(|home| *home == places.here);
    let whose = if is_home { Whose::Person } else { Whose::Project };
    files.extend(here.iter().map(|name| (places.here.join(name), whose)));
    let mut seen = Vec::new();
    files.retain(|(file, _)| {
        !seen.contains(file) && {
            seen.push(file.clone());
            true
        }
    });
    files
}

/// A file as a tree, whichever language it is in. The error goes on after the file's name.
fn tree(file: &Path, text: &str) -> Result<Value, String> {
    if file.extension().is_some_and(|extension| extension == "toml") {
        return toml::parse(text).map_err(|(line, what)| format!("{line}: {what}"));
    }
    let parsed = json::parse(text);
    match parsed.broken {
        Some((spot, problem)) => Err(format!("{}:{}: {}", spot.line, spot.col, problem.what())),
        None => Ok(parsed.root.value()),
    }
}

/// The servers in a program's file: a map by name, or a list of entries with names.
fn entries<'a>(program: Program, root: &'a Value, places: &Places) -> Vec<(&'a str, &'a Map<String, Value>)> {
    let mut groups: Vec<&Value> = Vec::new();
    match program {
        Program::ClaudeCode => {
            groups.push(&root["mcpServers"]);
            let folders: Vec<String> = places.here.ancestors().map(|folder| folder.display().to_string()).collect();
            groups.extend(folders.iter().map(|folder| &root["projects"][folder]["mcpServers"]));
        }
        Program::ClaudeDesktop | Program::Cursor => groups.push(&root["mcpServers"]),
        Program::Codex => groups.push(&root["mcp_servers"]),
        Program::VsCode => groups.extend([&root["servers"], &root["mcp"]["servers"], &root["mcp.servers"]]),
        Program::Opencode => groups.push(&root["mcp"]),
        Program::Nexus3 => groups.extend([&root["servers"], &root["mcpServers"], &root["mcp_servers"]]),
    }
    let mut entries = Vec::new();
    for group in groups {
        match group {
            Value::Object(by_name) => {
                entries.extend(by_name.iter().filter_map(|(name, entry)| Some((name.as_str(), entry.as_object()?))));
            }
            Value::Array(list) => {
                let named = list.iter().filter_map(Value::as_object);
                entries.extend(named.filter_map(|entry| Some((entry.get("name")?.as_str()?, entry))));
            }
            _ => {}
        }
    }
    entries
}

#[cfg(test)]
mod tests;
