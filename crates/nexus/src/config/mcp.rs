//! The upstream servers of `mcp.json`: files in layers, read together, the nearer one winning.
//!
//! One faulty entry stops neither the others nor the hub: what is wrong is told, and the rest works.

pub mod edit;
mod entry;
pub mod fields;
pub mod import;
pub mod json;
mod layers;
mod variables;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nexus_core::name::ServerName;
use nexus_mcp::upstream::config::{ServerConfig, Source};
use sha2::{Digest, Sha256};

pub use entry::is_telling;
pub use layers::{Layer, Places};

use entry::{Meaning, Reader, Surroundings, Unset};
use json::{Entry, Node, Parsed};
use layers::{Content, Trust};

use super::env::Env;
use super::faults::{Faults, Problem, Spot, did_you_mean, shown};
use crate::store::hex;

/// All files together. Each server is a process or a connection; a hub for more is another kind of hub.
const MOST_SERVERS: usize = 1000;

/// Characters of an entry that a question shows.
const MOST_SHOWN: usize = 8000;

/// Keys of a file that are not ours and that others put there.
const NOT_OURS: [&str; 2] = ["$schema", "inputs"];

/// Everything that is configured, and everything that is wrong with it.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    pub servers: BTreeMap<String, Server>,
    /// Entries that cannot be used, by name.
    pub broken: BTreeMap<String, Broken>,
    /// Each with its place, a piece of the file and how to mend it.
    pub faults: Vec<String>,
    pub warnings: Vec<String>,
    /// Files that could not be read to their end.
    unread: Vec<PathBuf>,
}

/// A server and the entry it was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    pub config: ServerConfig,
    pub file: PathBuf,
    /// SHA-256 of the entry as it is written. Another entry wants another yes.
    pub digest: String,
    /// The entry as it is written.
    pub written: String,
    /// The nearer file that switched it off, and where.
    pub off_by: Option<(PathBuf, usize)>,
}

impl Server {
    /// What keeps it from being started, where that is another file than its own.
    pub fn switched_off(&self) -> Option<String> {
        let (file, line) = self.off_by.as_ref()?;
        Some(format!("it is switched off by {}:{line}", file.display()))
    }

    /// The entry for whoever is asked about it: without comments, which are no part of it, and with everything that
    /// could pass for something else written out.
    pub fn shown(&self) -> String {
        let entry = format!("{:#}", json::parse(&self.written).root.value());
        let mut plain = String::with_capacity(entry.len());
        for c in nexus_core::redact::text(&entry).chars() {
            if c == '\n' || c == ' ' || !(c.is_control() || c.is_whitespace() || is_invisible(c)) {
                plain.push(c);
            } else {
                plain.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
        }
        match plain.char_indices().nth(MOST_SHOWN) {
            None => plain,
            Some((at, _)) => format!("{}\n… it goes on: read all of it in the file before you say yes", &plain[..at]),
        }
    }
}

/// Characters that are not seen, or that change how others are.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// An entry that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    pub file: PathBuf,
    pub line: usize,
    /// Its first fault, in one line.
    pub why: String,
}

/// Reads all files. `allow_private` is nexus.yaml's, for all servers.
pub fn read(places: &Places, allow_private: &[String], env: &Env) -> Reading {
    let mut reading = Reading::default();
    for layer in places.layers() {
        let text = match layer.read() {
            Content::Absent if places.extra.contains(&layer.file) => {
                let problem = Problem::new("does not exist").hint("`mcp.files` of nexus.yaml names it");
                reading.not_read(&layer.file, problem);
                continue;
            }
            Content::Absent => continue,
            Content::Text(text) => text,
            Content::Unreadable(problem) => {
                reading.not_read(&layer.file, problem);
                reading.unread.push(layer.file);
                continue;
            }
        };
        let around = Surroundings {
            env,
            text: &text,
            base: &layer.base,
            trust: layer.trust,
            allow_private,
            unset: Unset::Fault,
        };
        reading.add(&layer, Reader { around, faults: Faults::default(), warnings: Faults::default() });
    }
    reading
}

impl Reading {
    fn not_read(&mut self, file: &Path, problem: Problem) {
        let mut faults = Faults::default();
        faults.in_file(file, "");
        faults.file(problem);
        self.faults.extend(faults.told(0));
    }

    fn add(&mut self, layer: &Layer, mut reader: Reader<'_>) {
        let text = reader.around.text;
        reader.faults.in_file(&layer.file, text);
        reader.warnings.in_file(&layer.file, text);
        let Parsed { root, broken, mut doubled } = json::parse(text);
        if let Some((spot, problem)) = broken {
            reader.faults.at(spot, problem);
            self.unread.push(layer.file.clone());
        }
        for (entry, twice) in entries(&root, &mut reader) {
            let doubled: Vec<_> = doubled.extract_if(.., |doubled| doubled.is_of(entry)).collect();
            let twice = twice.into_iter().chain(doubled.into_iter().map(|doubled| (doubled.spot, doubled.problem)));
            self.take(layer, entry, twice.collect(), &mut reader);
        }
        for doubled in doubled {
            reader.faults.at(doubled.spot, doubled.problem);
        }
        self.faults.extend(reader.faults.told(0));
        self.warnings.extend(reader.warnings.told(0));
    }

    /// `twice`: what is given twice in it, if only its name. It is not for us to say which one is meant.
    fn take(&mut self, layer: &Layer, entry: &Entry, twice: Vec<Fault>, reader: &mut Reader<'_>) {
        let name = entry.key.as_str();
        let known = self.servers.contains_key(name) || self.broken.contains_key(name);
        if !known && self.servers.len() + self.broken.len() >= MOST_SERVERS {
            reader.faults.at(entry.spot, Problem::new(format!("there are more than {MOST_SERVERS} servers")));
            return;
        }
        let (file, line, before) = (layer.file.clone(), entry.spot.line, reader.faults.len());
        let written = &reader.around.text[entry.value.span.clone()];
        let digest = hex(&Sha256::digest(written.as_bytes()));
        let source = layer.source(line);
        let is_clear = twice.is_empty();
        twice.into_iter().for_each(|(spot, problem)| reader.faults.at(spot, problem));
        match reader.read(name, entry.spot, &entry.value, source.clone()).filter(|_| is_clear) {
            Some(Meaning::Server(config)) => {
                self.broken.remove(name);
                let server = Server { config: *config, file, digest, written: written.to_owned(), off_by: None };
                self.servers.insert(name.to_owned(), server);
            }
            Some(Meaning::Off) => {
                self.broken.remove(name);
                let server = self.servers.entry(name.to_owned()).or_insert_with(|| Server {
                    config: nowhere(name, source),
                    file: file.clone(),
                    digest,
                    written: written.to_owned(),
                    off_by: None,
                });
                server.config.enabled = false;
                server.off_by = Some((file, line));
            }
            // A nearer entry that is meant to replace a farther one does not let that one run instead.
            None => {
                self.servers.remove(name);
                let why = reader.faults.told(before).into_iter().next().unwrap_or_default();
                let why = why.lines().next().unwrap_or_default().to_owned();
                self.broken.insert(name.to_owned(), Broken { file, line, why });
            }
        }
    }

    /// What became faulty since `last` stays as it was, as far as it is still in the same file.
    pub fn keep(&mut self, last: &Reading) {
        for (name, server) in &last.servers {
            if self.servers.contains_key(name) {
                continue;
            }
            let broken = self.broken.get(name).is_some_and(|broken| broken.file == server.file);
            let unread = !self.broken.contains_key(name) && self.unread.contains(&server.file);
            if broken || unread {
                self.servers.insert(name.clone(), server.clone());
            }
        }
    }
}

type Fault = (Spot, Problem);

/// The entries of both shapes of a file, with a fault where both have it, and a word about what else is in it.
fn entries<'a>(root: &'a Node, reader: &mut Reader<'_>) -> Vec<(&'a Entry, Option<Fault>)> {
    if !root.is_map() {
        if reader.faults.is_empty() {
            let problem = Problem::new("a map belongs here").hint(r#"{ "mcpServers": { "name": { "command": … } } }"#);
            reader.faults.at(root.spot, problem);
        }
        return Vec::new();
    }
    let mut entries: Vec<(&Entry, Option<Fault>)> = Vec::new();
    for shape in root.entries() {
        match shape.key.as_str() {
            "servers" | "mcpServers" if shape.value.is_map() => {
                for entry in shape.value.entries() {
                    match entries.iter_mut().find(|(known, _)| known.key == entry.key) {
                        Some((_, twice)) => {
                            let problem = Problem::new(format!("`{}` is given twice", shown(&entry.key)));
                            *twice = Some((entry.spot, problem.hint("it stands in `servers` and in `mcpServers`")));
                        }
                        None => entries.push((entry, None)),
                    }
                }
            }
            "servers" | "mcpServers" => {
                let problem = Problem::new(format!("`{}` is a map of servers by name", shape.key));
                reader.faults.at(shape.value.spot, problem.hint(r#"{ "name": { "command": … } }"#));
            }
            key if NOT_OURS.contains(&key) => {}
            key => {
                let near = did_you_mean(key, ["servers", "mcpServers"]);
                let problem = Problem::new(format!("the field `{}` has no meaning here", shown(key)));
                reader.warnings.at(shape.spot, problem.maybe_hint(near));
            }
        }
    }
    entries
}

fn nowhere(name: &str, source: Source) -> ServerConfig {
    let endpoint = nexus_mcp::upstream::config::Endpoint::Stdio(nexus_mcp::upstream::config::Program::new(
        "",
        Vec::<String>::new(),
    ));
    ServerConfig { name: ServerName::new(name), endpoint: None, source, ..ServerConfig::new(name, endpoint) }
}

/// What is wrong, and what is odd, with one entry of a text that is not in its file yet.
pub fn check_entry(file: &Path, text: &str, name: &str, env: &Env) -> (Vec<String>, Vec<String>) {
    let own = env.home().map(|home| home.join(".nexus/mcp.json"));
    let own = own.map(|own| own.canonicalize().unwrap_or(own));
    let trust = if own.as_deref() == Some(file) { Trust::Operator } else { Trust::Project };
    let base = layers::base_of(file);
    let around = Surroundings { env, text, base: &base, trust, allow_private: &[], unset: Unset::Warning };
    let mut reader = Reader { around, faults: Faults::default(), warnings: Faults::default() };
    reader.faults.in_file(file, text);
    reader.warnings.in_file(file, text);
    let root = json::parse(text).root;
    if let Some(entry) = ["mcpServers", "servers"].iter().find_map(|shape| root.get(shape)?.entry(name)) {
        reader.read(name, entry.spot, &entry.value, Source::Program);
    }
    (reader.faults.told(0), reader.warnings.told(0))
}

/// What nexus.yaml says of private addresses, as the upstreams take it.
pub fn allow_private(config: &super::Config) -> Vec<String> {
    use super::values::net::Reachable;
    let text = |reachable: &Reachable| match reachable {
        Reachable::Net(net) => net.as_ref().to_owned(),
        Reachable::Host(host) => host.to_string(),
    };
    config.mcp.allow_private.iter().map(text).collect()
}

#[cfg(test)]
mod tests;
