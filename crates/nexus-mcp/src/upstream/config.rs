//! What is configured of a server, once its entry is read and its variables are filled in.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use sha2::{Digest, Sha256};

use nexus_core::name::ServerName;
use nexus_core::principal::Patterns;

/// How long a request may take when its entry does not say.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// The variables a server gets from the hub without being named.
pub const INHERITED: [&str; 12] =
    ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "SHELL", "TMPDIR", "TMP", "TEMP"];

/// One server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    pub name: ServerName,
    /// None: the entry names neither a command nor a url, which is an error once it is to be connected.
    pub endpoint: Option<Endpoint>,
    pub era: EraChoice,
    /// Without an answer or progress for so long, a request has failed.
    pub timeout: Duration,
    pub enabled: bool,
    /// Started when first needed, not before.
    pub lazy: bool,
    /// stdio: a process of its own for every session.
    pub isolate: bool,
    /// Which of its tools are offered at all, by the server's own names.
    pub allow: Patterns,
    pub deny: Patterns,
    /// In place of `mcp_{server}_`.
    pub prefix: Option<String>,
    pub source: Source,
    /// Its command line or url as it stands in its file, variables not filled in: what others are shown of it. None: what
    /// the endpoint says, for servers that a program names.
    pub written: Option<String>,
}

impl ServerConfig {
    /// A server that was not read from a file.
    pub fn new(name: &str, endpoint: Endpoint) -> Self {
        Self {
            name: ServerName::new(name),
            endpoint: Some(endpoint),
            era: EraChoice::Auto,
            timeout: DEFAULT_TIMEOUT,
            enabled: true,
            lazy: false,
            isolate: false,
            allow: Patterns::all(),
            deny: Patterns::default(),
            prefix: None,
            source: Source::Program,
            written: None,
        }
    }

    /// Whether the entry itself says who asks.
    pub fn identifies(&self) -> bool {
        let Some(Endpoint::Http(http)) = &self.endpoint else { return false };
        http.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
    }
}

impl ServerConfig {
    /// Tells this entry from another of the same name: what would be started or called, and which file says so.
    pub fn edition(&self) -> u64 {
        let mut sha = Sha256::new();
        let mut add = |part: &str| {
            sha.update(part.len().to_be_bytes());
            sha.update(part);
        };
        match &self.source {
            Source::Home { file, .. } | Source::Project { file, .. } => add(&file.to_string_lossy()),
            Source::Program => add(""),
        }
        match &self.endpoint {
            None => {}
            Some(Endpoint::Stdio(Program { command, args, env, cwd })) => {
                add(command);
                args.iter().for_each(|arg| add(arg));
                env.iter().flat_map(|(name, value)| [name, value]).for_each(|part| add(part));
                add(&cwd.as_ref().map_or_else(Default::default, |cwd| cwd.to_string_lossy()));
            }
            Some(Endpoint::Http(HttpEndpoint { url, headers, .. })) => {
                add(url);
                headers.iter().flat_map(|(name, value)| [name, value]).for_each(|part| add(part));
            }
        }
        let digest = sha.finalize();
        digest.iter().take(8).fold(0, |edition, byte| edition << 8 | u64::from(*byte))
    }
}

/// Where to find it.
#[derive(Clone, Debug, PartialEq)]
pub enum Endpoint {
    Stdio(Program),
    Http(HttpEndpoint),
}

/// A program to start. No shell is involved.
#[derive(Clone, PartialEq, Eq)]
pub struct Program {
    pub command: String,
    pub args: Vec<String>,
    /// All of its variables: nothing else is inherited.
    pub env: Vec<(String, String)>,
    pub cwd: Option<PathBuf>,
}

impl Program {
    pub fn new<S: Into<String>>(command: impl Into<String>, args: impl IntoIterator<Item = S>) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Self { command: command.into(), args, env: Vec::new(), cwd: None }
    }

    /// Takes those of [`INHERITED`] over from an environment.
    #[must_use]
    pub fn inherit(mut self, environment: impl IntoIterator<Item = (String, String)>) -> Self {
        self.env.extend(environment.into_iter().filter(|(name, _)| INHERITED.contains(&name.as_str())));
        self
    }
}

/// Without the values of variables, which may be secret.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Program").field("command", &self.command).field("env", &names).finish_non_exhaustive()
    }
}

/// An address to call.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpEndpoint {
    pub url: String,
    /// Sent with every request to this very host, and to no other.
    pub headers: Vec<(String, String)>,
    pub kind: HttpKind,
    /// Private addresses it may be at, beyond localhost.
    pub allow_private: Private,
}

impl HttpEndpoint {
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), headers: Vec::new(), kind: HttpKind::Auto, allow_private: Private::default() }
    }
}

impl fmt::Debug for HttpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpEndpoint").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Which private addresses may be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Private {
    /// All of them; never the metadata service of a cloud.
    pub all: bool,
    /// Host names, addresses, or networks as `10.0.0.0/8`.
    pub some: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpKind {
    /// Streamable HTTP; where the server does not know it, the older HTTP+SSE.
    #[default]
    Auto,
    Streamable,
    Sse,
}

/// Which protocol is spoken with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EraChoice {
    /// The new one where it is offered.
    #[default]
    Auto,
    Legacy,
    Modern,
}

/// Where an entry comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file the operator alone writes: in their home folder, or named in nexus.yaml.
    Home { file: PathBuf, line: usize },
    /// A file of a project folder, which somebody else may have written.
    Project { file: PathBuf, line: usize },
    /// Not from a file.
    Program,
}

/// The line is not compared: an entry that only moved within its file is still the same.
impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Home { file, .. }, Self::Home { file: other, .. })
            | (Self::Project { file, .. }, Self::Project { file: other, .. }) => file == other,
            (Self::Program, Self::Program) => true,
            _ => false,
        }
    }
}

impl Eq for Source {}
