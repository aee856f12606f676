//! The variables a command gets: the hub's, without what belongs to the hub alone.

use std::fmt;

/// The hub's own settings and keys, each also with `_FILE` at its end.
const OWN: &[&str] =
    &["MCP_", "NEXUS_", "CC_", "LOKI_", "NTFY_", "TELEGRAM_", "DOCKERHUB_", "CLOUDFLARE_", "GIT_TOKEN"];

/// What systemd meant for the hub and not for its children.
const SUPERVISOR: &[&str] = &["NOTIFY_SOCKET", "LISTEN_", "WATCHDOG_", "CREDENTIALS_DIRECTORY", "JOURNAL_STREAM"];

/// A name with one of these in it holds a secret, whoever's it is.
const SECRET: &[&str] =
    &["TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "API_KEY", "APIKEY", "PRIVATE_KEY", "CREDENTIAL"];

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The variables of a command.
#[derive(Clone, PartialEq, Eq)]
pub struct Environment(Vec<(String, String)>);

impl Environment {
    /// A command that prints its environment must not print the hub's keys.
    pub fn for_commands(hub: &[(String, String)]) -> Self {
        let mut kept: Vec<_> = hub.iter().filter(|(name, _)| name != "TERM" && !is_kept_back(name)).cloned().collect();
        if !kept.iter().any(|(name, _)| name == "PATH") {
            kept.push(("PATH".to_owned(), DEFAULT_PATH.to_owned()));
        }
        // Nobody looks at a screen: programs need not draw on it.
        kept.push(("TERM".to_owned(), "dumb".to_owned()));
        Self(kept)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

fn is_kept_back(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    starts(OWN) || starts(SUPERVISOR) || SECRET.iter().any(|word| name.contains(word))
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_do_not_get_the_hubs_keys() {
        let names = |hub: &[&str]| {
            let hub: Vec<_> = hub.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect();
            Environment::for_commands(&hub).iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(&["PATH", "HOME", "TERM", "SSH_AUTH_SOCK"]), ["PATH", "HOME", "SSH_AUTH_SOCK", "TERM"]);
        assert_eq!(
            names(&[
                "MCP_API_KEY",
                "MCP_API_KEY_FILE",
                "GIT_TOKEN",
                "NEXUS_STORE",
                "LOKI_PASSWORD",
                "my_secret",
                "NOTIFY_SOCKET"
            ]),
            ["PATH", "TERM"]
        );
    }
}
