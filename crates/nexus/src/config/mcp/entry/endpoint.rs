//! What to start, or where to connect.

use std::path::Path;

use nexus_core::redact;
use nexus_mcp::upstream::config::{Endpoint, HttpEndpoint, HttpKind, Program};

use super::{Fill, PROJECT_FOLDER, Reader};
use crate::config::faults::{Problem, shown};
use crate::config::mcp::json::{Kind, Node};
use crate::config::section::Value;
use crate::config::values::net::HostPort;

/// Fields that only a program has.
const OF_PROGRAMS: [&str; 5] = ["args", "env", "env_passthrough", "cwd", "isolate"];
const OF_ADDRESSES: [&str; 2] = ["headers", "allow_private"];

/// Headers that the transport itself writes: another value would break or forge its messages.
const OURS: [&str; 8] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "content-type",
    "accept",
    "mcp-session-id",
    "mcp-protocol-version",
];

/// What a transport is called, here and elsewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kin {
    Stdio,
    Http(HttpKind),
}

impl Reader<'_> {
    /// None: the entry names none, or something is wrong with it.
    pub(super) fn endpoint(&mut self, entry: &Node) -> Option<Endpoint> {
        let kin = self.kin(entry);
        match (entry.entry("command"), entry.entry("url")) {
            (Some(_), Some(url)) => {
                let problem = Problem::new("a server has a `command` or a `url`, not both");
                self.faults.at(url.spot, problem.hint("take one of them out"));
                None
            }
            (Some(command), None) => {
                self.foreign(entry, &OF_ADDRESSES, "a server with a `url`");
                if matches!(kin, Some(Kin::Http(_))) {
                    self.faults.at(command.spot, Problem::new("a server that is reached by HTTP has a `url`"));
                }
                self.program(entry, &command.value).map(Endpoint::Stdio)
            }
            (None, Some(url)) => {
                self.foreign(entry, &OF_PROGRAMS, "a server with a `command`");
                let kind = match kin {
                    Some(Kin::Stdio) => {
                        self.faults.at(url.spot, Problem::new("a server on stdio has a `command`"));
                        HttpKind::Auto
                    }
                    Some(Kin::Http(kind)) => kind,
                    None => HttpKind::Auto,
                };
                self.address(entry, &url.value, kind).map(Endpoint::Http)
            }
            (None, None) => None,
        }
    }

    fn foreign(&mut self, entry: &Node, fields: &[&str], whose: &str) {
        for field in entry.entries().iter().filter(|field| fields.contains(&field.key.as_str())) {
            let empty = match &field.value.kind {
                Kind::List(items) => items.is_empty(),
                Kind::Map(entries) => entries.is_empty(),
                kind => matches!(kind, Kind::Null | Kind::Bool(false)),
            };
            if !empty {
                let problem = Problem::new(format!("`{}` has a meaning only for {whose}", field.key));
                self.warnings.at(field.spot, problem);
            }
        }
    }

    fn kin(&mut self, entry: &Node) -> Option<Kin> {
        let named: Vec<&Node> = ["transport", "type"].iter().filter_map(|field| entry.get(field)).collect();
        let mut kin = None;
        for node in named {
            let word = node.text().map(str::to_ascii_lowercase);
            let this = match word.as_deref() {
                Some("stdio" | "local") => Kin::Stdio,
                // Others mean both by it, the older one where the newer is not known.
                Some("http" | "remote") => Kin::Http(HttpKind::Auto),
                Some("streamable-http" | "streamable_http" | "streamablehttp") => Kin::Http(HttpKind::Streamable),
                Some("sse") => Kin::Http(HttpKind::Sse),
                _ => {
                    let problem = Problem::new("the transport is \"stdio\", \"http\" or \"sse\"");
                    self.faults.at(node.spot, problem.hint("leave it out: a command is stdio, a url is http"));
                    continue;
                }
            };
            if kin.is_some_and(|kin| kin != this) {
                self.faults.at(node.spot, Problem::new("`transport` and `type` say different things"));
            }
            kin = Some(this);
        }
        kin
    }

    fn program(&mut self, entry: &Node, command: &Node) -> Option<Program> {
        let before = self.faults.len();
        let mut words = match &command.kind {
            Kind::Text(_) => self.filled(command).into_iter().collect(),
            Kind::List(_) => self.texts(command, Fill::Variables).into_iter().map(|(word, _)| word).collect(),
            _ => Vec::new(),
        };
        if self.faults.len() > before {
            return None;
        }
        if words.first().is_none_or(|word| word.trim().is_empty()) {
            let problem = Problem::new("`command` is a program, or a list of a program and its arguments");
            self.faults.at(command.spot, problem.hint(r#""npx", or ["npx", "-y", "…"]"#));
            return None;
        }
        if let Some(args) = entry.get("args") {
            words.extend(self.texts(args, Fill::Variables).into_iter().map(|(word, _)| word));
        }
        let mut words = words.into_iter();
        let mut command = words.next().unwrap_or_default();
        let project = self.around.project();
        if let Some(folder) = project.filter(|_| command.contains('/')) {
            // An absolute one stays what it is.
            command = folder.join(command).display().to_string();
        }
        let mut program = Program::new(command, words).inherit(self.around.env.all());
        if let Some(folder) = project {
            program.env.retain(|(known, _)| known != PROJECT_FOLDER);
            program.env.push((PROJECT_FOLDER.to_owned(), folder.display().to_string()));
        }
        self.passthrough(entry, &mut program);
        if let Some(env) = entry.get("env") {
            for (name, value, spot) in self.pairs(env) {
                if name.is_empty() || name.contains(['=', '\0']) {
                    self.faults.at(spot, Problem::not(&name, "the name of an environment variable"));
                    continue;
                }
                learn(&name, &value);
                program.env.retain(|(known, _)| *known != name);
                program.env.push((name, value));
            }
        }
        let cwd = entry.get("cwd").and_then(|node| {
            let folder = node.text().and_then(|_| self.filled(node));
            let Some(folder) = folder.filter(|folder| !folder.is_empty()) else {
                self.faults.at(node.spot, Problem::new("`cwd` is a folder"));
                return None;
            };
            Some(match (folder.strip_prefix("~/"), self.around.env.home()) {
                (Some(rest), Some(home)) => home.join(rest),
                _ => self.around.base.join(folder),
            })
        });
        program.cwd = cwd.or_else(|| project.map(Path::to_owned));
        Some(program)
    }

    fn passthrough(&mut self, entry: &Node, program: &mut Program) {
        let Some(names) = entry.get("env_passthrough") else { return };
        for (name, _) in self.texts(names, Fill::No) {
            if let Some(value) = self.around.env.variable(&name) {
                learn(&name, &value);
                program.env.retain(|(known, _)| *known != name);
                program.env.push((name, value));
            }
        }
    }

    fn address(&mut self, entry: &Node, url: &Node, kind: HttpKind) -> Option<HttpEndpoint> {
        let allow_private = self.private(entry);
        let headers = self.headers(entry);
        if url.text().is_none() {
            self.faults.at(url.spot, Problem::new("`url` is text"));
            return None;
        }
        let filled = self.filled(url)?;
        if let Err(problem) = check_url(&filled, url.text().unwrap_or_default()) {
            self.faults.at(url.spot, problem);
            return None;
        }
        learn_query(&filled);
        Some(HttpEndpoint { url: filled, headers, kind, allow_private })
    }

    fn headers(&mut self, entry: &Node) -> Vec<(String, String)> {
        let Some(node) = entry.get("headers") else { return Vec::new() };
        let mut headers: Vec<(String, String)> = Vec::new();
        for (name, value, spot) in self.pairs(node) {
            // No value is repeated here: it is a secret most of the time.
            let problem = if !is_header_name(&name) {
                Problem::not(&name, "the name of a header")
            } else if OURS.contains(&name.to_ascii_lowercase().as_str()) {
                Problem::new(format!("the header `{}` is written by the hub itself", shown(&name))).hint("take it out")
            } else if value.bytes().any(|c| c != b'\t' && !(b' '..=b'~').contains(&c)) {
                Problem::new(format!("the value of `{}` holds something that no header can", shown(&name)))
            } else if headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(&name)) {
                Problem::new(format!("the header `{}` is given twice", shown(&name)))
            } else {
                learn(&name, &value);
                headers.push((name, value));
                continue;
            };
            self.faults.at(spot, problem);
        }
        headers
    }
}

/// The command line or the address as the file has it, for everybody to see: what variables add may be secret.
pub(super) fn written(entry: &Node) -> Option<String> {
    if let Some(command) = entry.get("command") {
        let args = entry.get("args").map(Node::items).unwrap_or_default();
        let words = command.scalar().into_iter().chain(command.items().iter().chain(args).filter_map(Node::scalar));
        return Some(words.collect::<Vec<_>>().join(" "));
    }
    entry.get("url")?.text().map(str::to_owned)
}

/// `written` is what the file says: what variables add may be secret.
fn check_url(url: &str, written: &str) -> Result<(), Problem> {
    let wrong = || Problem::not(written, "an http or https URL").hint("https://tools.example/mcp");
    let lower = url.to_ascii_lowercase();
    let rest = lower.strip_prefix("https://").or_else(|| lower.strip_prefix("http://")).ok_or_else(wrong)?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        let problem = Problem::new("credentials do not belong in the address of a server");
        return Err(problem.hint(r#""headers": { "Authorization": "Bearer ${TOKEN}" }"#));
    }
    if HostPort::parse(authority).is_err() || url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(wrong());
    }
    Ok(())
}

fn is_header_name(name: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    !name.is_empty() && name.len() <= 128 && name.bytes().all(plain)
}

/// Names that announce a secret.
pub fn is_telling(name: &str) -> bool {
    const TELLING: [&str; 9] =
        ["authorization", "key", "token", "secret", "password", "passwd", "credential", "cookie", "auth"];
    let name = name.to_ascii_lowercase();
    TELLING.iter().any(|telling| name.contains(telling))
}

/// From now on the value is hidden wherever it stands, a token also without its `Bearer`.
fn learn(name: &str, value: &str) {
    if is_telling(name) {
        let bare = value.split_once(' ').map(|(_, bare)| bare.trim());
        redact::learn([Some(value), bare].into_iter().flatten().filter(|value| redact::can_be_learnt(value)));
    }
}

/// Some servers take their key in the address.
fn learn_query(url: &str) {
    let query = url.split_once('?').map_or("", |(_, query)| query.split('#').next().unwrap_or(query));
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        learn(name, value);
    }
}
