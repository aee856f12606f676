//! One server's entry: every field checked, variables filled in, all faults told with their places.

mod endpoint;

pub use endpoint::is_telling;

use std::path::Path;
use std::time::Duration;

use nexus_core::name::ServerName;
use nexus_core::principal::Patterns;
use nexus_mcp::upstream::config::{DEFAULT_TIMEOUT, EraChoice, Private, ServerConfig, Source};

use super::fields;
use super::json::{Kind, Node};
use super::layers::Trust;
use super::variables::{self, Missing};
use crate::config::env::Env;
use crate::config::faults::{Faults, Problem, Spot, did_you_mean, shown};
use crate::config::section::Value;
use crate::config::values::measure::Period;
use crate::config::values::net::Reachable;

/// A number from here on is in milliseconds, as Claude Code writes it; below, in seconds.
const MILLISECONDS_FROM: f64 = 1000.0;
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Characters of a server's name: it becomes a part of each of its tools' names.
const LONGEST_NAME: usize = 64;

/// What an entry means.
#[derive(Clone, Debug, PartialEq)]
pub enum Meaning {
    Server(Box<ServerConfig>),
    /// `{"enabled": false}` and nothing else: switches off a server of a farther file.
    Off,
}

/// Where an entry stands and what it is filled in from.
#[derive(Debug)]
pub struct Surroundings<'a> {
    pub env: &'a Env,
    /// The text of the file.
    pub text: &'a str,
    /// Relative paths start here.
    pub base: &'a Path,
    pub trust: Trust,
    /// From nexus.yaml, for all servers.
    pub allow_private: &'a [String],
    pub unset: Unset,
}

/// Where the folder of the project is, for what Claude Code's files say.
const PROJECT_FOLDER: &str = "CLAUDE_PROJECT_DIR";

impl<'a> Surroundings<'a> {
    fn variable(&self, name: &str) -> Option<String> {
        match (name, self.project()) {
            (PROJECT_FOLDER, Some(folder)) => Some(folder.display().to_string()),
            _ => self.env.variable(name),
        }
    }

    /// The folder that a project's file belongs to.
    fn project(&self) -> Option<&'a Path> {
        (self.trust == Trust::Project).then_some(self.base)
    }
}

/// What a variable without a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unset {
    Fault,
    /// For whoever writes an entry in another environment than the hub's.
    Warning,
}

/// Reads entries of one file. What is wrong goes to `faults`, what is merely odd to `warnings`.
#[derive(Debug)]
pub struct Reader<'a> {
    pub around: Surroundings<'a>,
    pub faults: Faults,
    pub warnings: Faults,
}

impl Reader<'_> {
    /// None: it is faulty.
    pub fn read(&mut self, name: &str, spot: Spot, entry: &Node, source: Source) -> Option<Meaning> {
        let before = self.faults.len();
        self.check_name(name, spot);
        if !entry.is_map() {
            let problem = Problem::new("a map of fields belongs here").hint(r#"{ "command": "npx", "args": […] }"#);
            self.faults.at(entry.spot, problem);
            return None;
        }
        self.check_fields(entry);
        let enabled = self.flag(entry, "enabled", true) && !self.flag(entry, "disabled", false);
        let lone = entry.entries().iter().all(|field| matches!(field.key.as_str(), "enabled" | "disabled"));
        if !enabled && lone {
            return (self.faults.len() == before).then_some(Meaning::Off);
        }
        let (allow, deny) = self.tools(entry);
        let config = ServerConfig {
            name: ServerName::new(name),
            endpoint: self.endpoint(entry),
            era: self.era(entry),
            timeout: self.timeout(entry),
            enabled,
            lazy: self.flag(entry, "lazy", false),
            isolate: self.flag(entry, "isolate", false),
            allow,
            deny,
            prefix: self.prefix(entry),
            source,
            written: endpoint::written(entry),
        };
        (self.faults.len() == before).then(|| Meaning::Server(Box::new(config)))
    }

    fn check_name(&mut self, name: &str, spot: Spot) {
        let odd = name.contains(|c: char| c.is_control()) || nexus_core::text::clean(name) != name;
        if name.trim().is_empty() || name.chars().count() > LONGEST_NAME || odd {
            let problem = Problem::not(name, format!("a server's name of 1 to {LONGEST_NAME} visible characters"));
            self.faults.at(spot, problem);
        }
    }

    fn check_fields(&mut self, entry: &Node) {
        for field in entry.entries() {
            if fields::is_known(&field.key) {
                continue;
            }
            let near = did_you_mean(&field.key, fields::names());
            let problem = Problem::new(format!("the field `{}` has no meaning here", shown(&field.key)));
            self.warnings.at(field.spot, problem.maybe_hint(near));
        }
    }

    fn flag(&mut self, entry: &Node, name: &str, default: bool) -> bool {
        let Some(node) = entry.get(name) else { return default };
        node.bool().unwrap_or_else(|| {
            self.faults.at(node.spot, Problem::new(format!("`{name}` is true or false")));
            default
        })
    }

    fn era(&mut self, entry: &Node) -> EraChoice {
        let Some(node) = entry.get("era") else { return EraChoice::Auto };
        match node.text() {
            Some("auto") => EraChoice::Auto,
            Some("legacy") => EraChoice::Legacy,
            Some("modern") => EraChoice::Modern,
            _ => {
                self.faults.at(node.spot, Problem::new("`era` is \"auto\", \"legacy\" or \"modern\""));
                EraChoice::Auto
            }
        }
    }

    fn timeout(&mut self, entry: &Node) -> Duration {
        let Some(node) = entry.get("timeout") else { return DEFAULT_TIMEOUT };
        let time = match &node.kind {
            Kind::Number(number) => number.parse().ok().and_then(|number: f64| {
                let seconds = if number >= MILLISECONDS_FROM { number / 1000.0 } else { number };
                Duration::try_from_secs_f64(seconds).ok()
            }),
            Kind::Text(text) => Period::parse(text).ok().map(|period| period.0),
            _ => None,
        };
        time.filter(|time| !time.is_zero() && *time <= LONGEST_TIMEOUT).unwrap_or_else(|| {
            let problem = Problem::new("`timeout` is a time of at most a day: seconds, or text with a unit");
            self.faults.at(node.spot, problem.hint(r#"60, "90s" or "5m""#));
            DEFAULT_TIMEOUT
        })
    }

    /// `{"allow": […], "deny": […]}`, or a list alone: those that are allowed.
    fn tools(&mut self, entry: &Node) -> (Patterns, Patterns) {
        let Some(node) = entry.get("tools") else { return (Patterns::all(), Patterns::default()) };
        match &node.kind {
            Kind::List(_) => (self.patterns(node), Patterns::default()),
            Kind::Map(inner) => {
                for field in inner.iter().filter(|field| !matches!(field.key.as_str(), "allow" | "deny")) {
                    let problem = Problem::new(format!("the field `{}` has no meaning here", shown(&field.key)));
                    self.warnings.at(field.spot, problem.hint("allow, deny"));
                }
                let allow = node.get("allow").map_or_else(Patterns::all, |allow| self.patterns(allow));
                let deny = node.get("deny").map_or_else(Patterns::default, |deny| self.patterns(deny));
                (allow, deny)
            }
            _ => {
                let problem = Problem::new("`tools` says which tools are offered");
                self.faults.at(node.spot, problem.hint(r#"{ "allow": ["read_*"], "deny": ["*_all"] }"#));
                (Patterns::default(), Patterns::default())
            }
        }
    }

    fn patterns(&mut self, node: &Node) -> Patterns {
        let mut globs = Vec::new();
        for (glob, spot) in self.texts(node, Fill::No) {
            match Patterns::parse([glob.clone()]) {
                Ok(_) => globs.push(glob),
                Err(error) => self.faults.at(spot, Problem::new(error.to_string())),
            }
        }
        Patterns::parse(globs).unwrap_or_default()
    }

    fn prefix(&mut self, entry: &Node) -> Option<String> {
        let node = entry.get("prefix")?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        match node.text() {
            Some(prefix) if prefix.len() <= 32 && prefix.chars().all(plain) => Some(prefix.to_owned()),
            _ => {
                let problem = Problem::new("`prefix` is text of letters, digits, `_` and `-`, at most 32 of them");
                self.faults.at(node.spot, problem.hint(r#""gh_", or "" for none"#));
                None
            }
        }
    }

    fn private(&mut self, entry: &Node) -> Private {
        let mut private = Private { all: false, some: self.around.allow_private.to_vec() };
        match entry.get("allow_private").map(|node| (node, &node.kind)) {
            None | Some((_, Kind::Bool(false))) => {}
            Some((_, Kind::Bool(true))) => private.all = true,
            Some((node, Kind::List(_))) => {
                for (text, spot) in self.texts(node, Fill::No) {
                    match Reachable::parse(&text) {
                        Ok(_) => private.some.push(text),
                        Err(problem) => self.faults.at(spot, problem),
                    }
                }
            }
            Some((node, _)) => {
                let problem = Problem::new("`allow_private` is true, false or a list of hosts, addresses and networks");
                self.faults.at(node.spot, problem.hint(r#"["tools.lan", "10.8.0.0/24"]"#));
            }
        }
        private
    }

    /// The texts of a list with their places.
    fn texts(&mut self, list: &Node, fill: Fill) -> Vec<(String, Spot)> {
        if !matches!(list.kind, Kind::List(_)) {
            let hint = list.scalar().map(|text| format!("[\"{}\"]", shown(text)));
            self.faults.at(list.spot, Problem::new("a list of texts belongs here").maybe_hint(hint));
            return Vec::new();
        }
        let mut texts = Vec::new();
        for item in list.items() {
            match (item.scalar(), fill) {
                (Some(text), Fill::No) => texts.push((text.to_owned(), item.spot)),
                (Some(_), Fill::Variables) => texts.extend(self.filled(item).map(|text| (text, item.spot))),
                (None, _) => self.faults.at(item.spot, Problem::new("text belongs here")),
            }
        }
        texts
    }

    /// Names with their texts, variables filled in.
    fn pairs(&mut self, map: &Node) -> Vec<(String, String, Spot)> {
        if !map.is_map() {
            self.faults.at(map.spot, Problem::new("a map of names and texts belongs here"));
            return Vec::new();
        }
        let mut pairs = Vec::new();
        for entry in map.entries() {
            if entry.value.scalar().is_none() {
                self.faults.at(entry.value.spot, Problem::new("text belongs here"));
            } else if let Some(text) = self.filled(&entry.value) {
                pairs.push((entry.key.clone(), text, entry.spot));
            }
        }
        pairs
    }

    /// A text with its variables filled in. None: one is missing, which was told.
    fn filled(&mut self, node: &Node) -> Option<String> {
        let text = node.scalar()?;
        let missing = match variables::fill(text, |name| self.around.variable(name)) {
            Ok(text) if text.contains('\0') => {
                self.faults.at(node.spot, Problem::new("a NUL character belongs nowhere"));
                return None;
            }
            Ok(text) => return Some(text),
            Err(missing) => missing,
        };
        let (written, problem) = match &missing {
            Missing::Unset(name) => (
                format!("${{{name}"),
                Problem::new(format!("the variable `{name}` is not set"))
                    .hint(format!("set it where the hub starts, or give a default: ${{{name}:-…}}")),
            ),
            Missing::Unclear(written) => (
                written.clone(),
                Problem::new(format!("`{}` is no variable", shown(written)))
                    .hint("${NAME} or ${NAME:-default}; $${ stands for ${ itself"),
            ),
        };
        // The place within the text, where the file has it as it is.
        let raw = &self.around.text[node.span.clone()];
        let ahead = raw.find(&written).map_or(0, |at| raw[..at].chars().count());
        let spot = Spot { col: node.spot.col + ahead, ..node.spot };
        if matches!(missing, Missing::Unset(_)) && self.around.unset == Unset::Warning {
            self.warnings.at(spot, problem);
            return Some("x".to_owned());
        }
        self.faults.at(spot, problem);
        None
    }
}

#[derive(Clone, Copy)]
enum Fill {
    No,
    Variables,
}
