//! The environment: every variable is declared here once, and read nowhere else.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, Serializer};

use super::faults::{Faults, Problem};
use super::section::Value;

/// Bytes. A file with a secret holds one line; anything longer is some other file.
const LARGEST_SECRET: u64 = 64 * 1024;

macro_rules! variables {
    ($( $(#[doc = $doc:literal])+ $variant:ident = $name:literal $($secret:ident)?, )+) => {
        /// A variable that the program reads.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum EnvVar { $( $(#[doc = $doc])+ $variant, )+ }

        impl EnvVar {
            pub const ALL: &'static [EnvVar] = &[$( EnvVar::$variant, )+];

            pub fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )+ }
            }

            /// Its line on the reference page.
            pub fn doc(self) -> &'static str {
                match self { $( Self::$variant => concat!($($doc),+).trim_ascii(), )+ }
            }

            /// A secret may also stand in the file that `NAME_FILE` names, and is never shown.
            pub fn is_secret(self) -> bool {
                match self { $( Self::$variant => variables!(@secret $($secret)?), )+ }
            }
        }
    };
    (@secret) => { false };
    (@secret secret) => { true };
}

variables! {
    /// Configuration file, where `--config` names none.
    NexusConfig = "NEXUS_CONFIG",
    /// Data folder, where `--data` names none.
    NexusData = "NEXUS_DATA",
    /// Log filter (`info`, `nexus=debug,warn`); beats `server.log_level`.
    NexusLog = "NEXUS_LOG",
    /// PostgreSQL in place of the SQLite file (`postgres://…`), for several hubs; beats `store`.
    NexusStore = "NEXUS_STORE" secret,
    /// The key named `default`, at least 32 characters.
    McpApiKey = "MCP_API_KEY" secret,
    /// Address of the MCP listener; beats `server.http_host`.
    McpHost = "MCP_HOST",
    /// Port of the MCP listener, 0 for any free one; beats `server.http_port`.
    McpPort = "MCP_PORT",
    /// Address of the listener for computers; beats `links.host`.
    CcLinkHost = "CC_LINK_HOST",
    /// Port of the listener for computers, 0 for any free one; beats `links.port`.
    CcLinkPort = "CC_LINK_PORT",
    /// What a computer must present, at least 8 characters; without it only private addresses may link.
    CcLinkToken = "CC_LINK_TOKEN" secret,
    /// Milliseconds that a computer has for an answer; beats `links.probe_timeout_ms`.
    CcProbeTimeoutMs = "CC_PROBE_TIMEOUT_MS",
    /// Loki that the record is shipped to and logs are read from.
    LokiUrl = "LOKI_URL",
    /// User at Loki.
    LokiUser = "LOKI_USER",
    /// Password at Loki.
    LokiPassword = "LOKI_PASSWORD" secret,
    /// Token for the Git forge and for `https` remotes.
    GitToken = "GIT_TOKEN" secret,
    /// Token for Cloudflare's API.
    CloudflareApiToken = "CLOUDFLARE_API_TOKEN" secret,
    /// Ntfy topic that notifications go to.
    NtfyUrl = "NTFY_URL",
    /// Token for Ntfy.
    NtfyToken = "NTFY_TOKEN" secret,
    /// Token for Docker Hub.
    DockerhubToken = "DOCKERHUB_TOKEN" secret,
    /// Token of the Telegram bot.
    TelegramBotToken = "TELEGRAM_BOT_TOKEN" secret,
    /// Key with which `nexus agent` serves its target.
    NexusAgentKey = "NEXUS_AGENT_KEY" secret,
    /// Socket by which a command of `nexus agent` reaches its worker; set for it.
    NexusAgentSocket = "NEXUS_AGENT_SOCKET",
    /// Secret that tasks to webhooks, and their answers, are signed with.
    NexusWebhookSecret = "NEXUS_WEBHOOK_SECRET" secret,
}

/// The environment as it was when the program started.
#[derive(Clone, Default)]
pub struct Env {
    variables: BTreeMap<OsString, OsString>,
}

/// A secret that can be used but not shown.
#[derive(Clone, Debug)]
pub struct Secret(SecretString);

impl Env {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub fn of_process() -> Self {
        Self { variables: std::env::vars_os().collect() }
    }

    #[cfg(test)]
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self { variables: pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }

    /// The files that secrets were read from (`NAME_FILE`).
    pub fn secret_files(&self) -> Vec<PathBuf> {
        let secrets = EnvVar::ALL.iter().filter(|variable| variable.is_secret());
        let names = secrets.map(|variable| OsString::from(format!("{}_FILE", variable.name())));
        names.filter_map(|name| self.variables.get(&name).map(PathBuf::from)).collect()
    }

    /// All secrets that are set, with their variables' names.
    pub fn secrets(&self) -> impl Iterator<Item = (EnvVar, Secret)> {
        let secrets = EnvVar::ALL.iter().filter(|variable| variable.is_secret());
        // What is wrong with one was told when the configuration was read.
        secrets.filter_map(|variable| Some((*variable, self.secret(*variable, &mut Faults::default())?)))
    }

    /// All of it, for the `get_env` tool, which decides what to show.
    pub fn all(&self) -> impl Iterator<Item = (String, String)> {
        let text = |text: &OsString| text.to_string_lossy().into_owned();
        self.variables.iter().map(move |(name, value)| (text(name), text(value)))
    }

    /// All of it but for what opens the hub, for the commands of `nexus agent`: an agent works with the operator's
    /// other credentials, and speaks with the hub through its worker.
    pub fn for_commands(&self) -> Vec<(OsString, OsString)> {
        let own = [
            EnvVar::NexusAgentKey,
            EnvVar::NexusWebhookSecret,
            EnvVar::NexusStore,
            EnvVar::McpApiKey,
            EnvVar::CcLinkToken,
            EnvVar::TelegramBotToken,
        ];
        let is_own = |name: &OsStr| {
            let name = name.to_string_lossy();
            own.iter().any(|variable| name.strip_suffix("_FILE").unwrap_or(&name) == variable.name())
        };
        let others = self.variables.iter().filter(|(name, _)| !is_own(name));
        others.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// One variable by a name that the operator wrote, for an upstream server. None: not set, or no text.
    pub fn variable(&self, name: &str) -> Option<String> {
        self.raw(name)?.to_str().map(str::to_owned)
    }

    pub fn home(&self) -> Option<PathBuf> {
        self.folder("HOME")
    }

    /// Where a user's programs keep their data.
    pub fn data_home(&self) -> Option<PathBuf> {
        self.folder("XDG_DATA_HOME").or_else(|| Some(self.home()?.join(".local/share")))
    }

    /// Where a user's programs have their configuration.
    pub fn config_home(&self) -> Option<PathBuf> {
        self.folder("XDG_CONFIG_HOME").or_else(|| Some(self.home()?.join(".config")))
    }

    /// Whether someone gave it, also as a file, also wrongly.
    pub fn is_set(&self, variable: EnvVar) -> bool {
        let name = variable.name();
        self.raw(name).is_some() || variable.is_secret() && self.raw(&format!("{name}_FILE")).is_some()
    }

    /// A path, which need not be valid text.
    pub fn path(&self, variable: EnvVar, faults: &mut Faults) -> Option<PathBuf> {
        let value = self.raw(variable.name())?;
        if value.is_empty() {
            faults.environment(variable.name(), empty());
            return None;
        }
        Some(value.into())
    }

    /// A value of the same kinds as in the file.
    pub fn value<T: Value>(&self, variable: EnvVar, faults: &mut Faults) -> Option<T> {
        let text = self.text(variable.name(), faults)?;
        T::parse(text).map_err(|problem| faults.environment(variable.name(), problem)).ok()
    }

    /// A secret, from the variable or from the file that its `_FILE` names.
    pub fn secret(&self, variable: EnvVar, faults: &mut Faults) -> Option<Secret> {
        let name = variable.name();
        let file_name = format!("{name}_FILE");
        let secret = match (self.raw(name), self.raw(&file_name)) {
            (Some(_), Some(_)) => {
                let problem = Problem::new(format!("and {file_name} are both set"));
                faults.environment(name, problem.hint("keep one of them"));
                return None;
            }
            (Some(_), None) => self.text(name, faults)?.to_owned(),
            (None, Some(file)) => {
                read_secret(Path::new(file)).map_err(|problem| faults.environment(&file_name, problem)).ok()?
            }
            (None, None) => return None,
        };
        if secret.contains(char::is_control) {
            let problem = Problem::new("holds a line break or another control character");
            faults.environment(name, problem.hint("a secret is one line"));
            return None;
        }
        Some(Secret(secret.into()))
    }

    fn text(&self, name: &str, faults: &mut Faults) -> Option<&str> {
        let problem = match self.raw(name)?.to_str() {
            Some(text) if !text.trim().is_empty() => return Some(text),
            Some(_) => empty(),
            None => Problem::new("is not valid UTF-8"),
        };
        faults.environment(name, problem);
        None
    }

    fn raw(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// The XDG rules: a folder that is not absolute counts as not set.
    fn folder(&self, name: &str) -> Option<PathBuf> {
        self.raw(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }
}

/// Names only: values may be secrets, also those that are not ours.
impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

impl Secret {
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("[set]")
    }
}

fn empty() -> Problem {
    Problem::new("is set but empty").hint("unset it, or give it a value")
}

/// The one line of a file that holds a secret.
pub fn read_secret(file: &Path) -> Result<String, Problem> {
    let unreadable = |why: &dyn fmt::Display| Problem::new(format!("names `{}`: {why}", file.display()));
    let mut bytes = Vec::new();
    std::fs::File::open(file)
        .and_then(|opened| opened.take(LARGEST_SECRET + 1).read_to_end(&mut bytes))
        .map_err(|error| unreadable(&error))?;
    if bytes.len() as u64 > LARGEST_SECRET {
        return Err(unreadable(&"too large for a secret"));
    }
    let text = String::from_utf8(bytes).map_err(|_| unreadable(&"not valid UTF-8"))?;
    let text = text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    if text.trim().is_empty() {
        return Err(unreadable(&"the file is empty"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_has_a_line_for_the_reference_page_and_a_name_of_its_own() {
        let mut names: Vec<_> = EnvVar::ALL.iter().map(|variable| variable.name()).collect();
        assert!(EnvVar::ALL.iter().all(|variable| variable.doc().ends_with('.')));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), EnvVar::ALL.len());
    }

    #[test]
    fn secrets_come_from_the_variable_or_from_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::File::create(&path).and_then(|mut file| std::io::Write::write_all(&mut file, content)).unwrap();
            path.display().to_string()
        };
        let here = folder.path().display().to_string();

        check(&[], Ok(None));
        check(&[("GIT_TOKEN", "abc")], Ok(Some("abc")));
        check(&[("GIT_TOKEN_FILE", &file("unix", b"abc\n"))], Ok(Some("abc")));
        check(&[("GIT_TOKEN_FILE", &file("windows", b"abc\r\n"))], Ok(Some("abc")));
        check(&[("GIT_TOKEN_FILE", &file("bare", b"abc"))], Ok(Some("abc")));
        check(&[("GIT_TOKEN", "abc\n")], Err("GIT_TOKEN holds a line break"));
        check(&[("GIT_TOKEN", "")], Err("GIT_TOKEN is set but empty"));
        check(&[("GIT_TOKEN", "abc"), ("GIT_TOKEN_FILE", "/x")], Err("GIT_TOKEN and GIT_TOKEN_FILE are both set"));
        check(
            &[("GIT_TOKEN_FILE", &file("empty", b"\n"))],
            Err(&format!("GIT_TOKEN_FILE names `{here}/empty`: the file is empty")),
        );
        check(
            &[("GIT_TOKEN_FILE", &file("bytes", b"\xff\xfe"))],
            Err(&format!("GIT_TOKEN_FILE names `{here}/bytes`: not valid UTF-8")),
        );
        check(
            &[("GIT_TOKEN_FILE", "/does/not/exist")],
            Err("GIT_TOKEN_FILE names `/does/not/exist`: No such file or directory"),
        );
        check(&[("GIT_TOKEN_FILE", "/dev/zero")], Err("GIT_TOKEN_FILE names `/dev/zero`: too large for a secret"));

        #[track_caller]
        fn check(pairs: &[(&str, &str)], expected: Result<Option<&str>, &str>) {
            let mut faults = Faults::default();
            let env = Env::from_pairs(pairs.iter().copied());
            let secret = env.secret(EnvVar::GitToken, &mut faults);
            assert!(!format!("{env:?} {secret:?}").contains("abc"));
            match expected {
                Ok(expected) => {
                    assert!(faults.is_empty(), "{faults}");
                    assert_eq!(secret.as_ref().map(Secret::expose), expected);
                }
                Err(expected) => {
                    let printed = faults.to_string();
                    assert!(printed.starts_with(&format!("environment: {expected}")), "{printed}");
                    assert!(!printed.contains("abc"), "{printed}");
                }
            }
        }
    }

    #[test]
    fn commands_of_a_worker_get_everything_but_the_keys_to_the_hub() {
        let env = Env::from_pairs([
            ("NEXUS_AGENT_KEY", "x"),
            ("NEXUS_AGENT_KEY_FILE", "x"),
            ("MCP_API_KEY", "x"),
            ("TELEGRAM_BOT_TOKEN_FILE", "x"),
            ("GIT_TOKEN", "theirs"),
            ("PATH", "/bin"),
        ]);
        let names: Vec<_> = env.for_commands().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["GIT_TOKEN", "PATH"]);
    }

    #[test]
    fn folders_follow_the_xdg_rules() {
        let env = Env::from_pairs([("HOME", "/home/u"), ("XDG_DATA_HOME", "relative"), ("XDG_CONFIG_HOME", "/etc/u")]);
        assert_eq!(env.data_home(), Some("/home/u/.local/share".into()));
        assert_eq!(env.config_home(), Some("/etc/u".into()));
        assert_eq!(Env::default().data_home(), None);
    }
}
