//! Which files hold secrets, by name and by content. `read_file` asks nobody, so it must not read these.

mod pattern;

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nexus_core::ToolError;
use thiserror::Error;

use crate::path::{lexical, one_line};
use pattern::{Pattern, names};

/// Patterns as [`Pattern::parse`] reads them, and what to call what they find.
const KNOWN: &[(&str, &[&str])] = &[
    ("a private key", &["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", "id_xmss"]),
    ("a private key", &["*.pem", "*.key", "*.ppk", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx"]),
    (
        "a private key",
        &["ssh_host_*_key", "etc/ssh/*_key", "etc/ssl/private", "etc/wireguard/*.conf", "etc/letsencrypt/archive"],
    ),
    (
        "passwords of this machine",
        &[
            "etc/shadow",
            "etc/shadow-",
            "etc/gshadow",
            "etc/gshadow-",
            "etc/sudoers",
            "etc/sudoers.d",
            "etc/security/opasswd",
        ],
    ),
    ("network passwords", &["etc/networkmanager/system-connections", "wpa_supplicant*.conf"]),
    ("variables that hold secrets", &[".env", ".env.*", "*.env", ".envrc"]),
    (
        "a process's variables or memory",
        &["proc/*/environ", "proc/*/task/*/environ", "proc/*/mem", "proc/*/task/*/mem", "proc/kcore"],
    ),
    // People pass passwords as arguments.
    ("a process's arguments", &["proc/*/cmdline", "proc/*/task/*/cmdline"]),
    (
        "saved logins",
        &[
            ".netrc",
            "_netrc",
            ".pgpass",
            ".my.cnf",
            ".git-credentials",
            ".npmrc",
            ".pypirc",
            ".htpasswd",
            ".vault-token",
        ],
    ),
    (
        "saved logins",
        &[
            ".aws/credentials",
            ".aws/sso",
            ".aws/cli/cache",
            ".azure",
            "gcloud/*credentials*",
            "gcloud/access_tokens.db",
        ],
    ),
    (
        "saved logins",
        &[".docker/config.json", ".dockercfg", ".kube/config", "kubeconfig", "k3s.yaml", "etc/kubernetes/*.conf"],
    ),
    (
        "saved logins",
        &["gh/hosts.yml", "rclone.conf", ".s3cfg", ".boto", ".cargo/credentials*", ".terraform.d/credentials*"],
    ),
    (
        "saved logins",
        &[".claude/.credentials.json", ".codex/auth.json", "opencode/auth.json", ".config/git/credentials"],
    ),
    ("a key ring", &[".gnupg", "keyrings/*.keyring"]),
    ("secrets handed to a service", &["run/secrets", "run/credentials", "etc/credstore", "etc/credstore.encrypted"]),
];

/// What in a `.ssh` folder is not secret; the rest there is taken for keys, whatever their name.
const OPEN_IN_SSH: &[&str] = &["config", "known_hosts", "known_hosts.old", "authorized_keys", "*.pub"];

/// Files that are known under any other name, too: a hard link looks like any file. So are those the operator names.
const BY_INODE: &[&str] = &["/etc/shadow", "/etc/gshadow", "/etc/sudoers"];

/// The rules.
#[derive(Debug)]
pub struct Secrets {
    rules: Vec<(Pattern, &'static str)>,
    ssh: Option<Pattern>,
    open_in_ssh: Vec<Pattern>,
    by_inode: Vec<PathBuf>,
}

/// The reason a file is not shown.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{path} is not shown: it holds {what}")]
pub struct Secret {
    path: String,
    what: &'static str,
}

impl From<Secret> for ToolError {
    fn from(secret: Secret) -> Self {
        ToolError::refused(secret).hint(
            "nobody is asked before a read; if a human wants this shown, use run_command, which asks for approval",
        )
    }
}

impl Secrets {
    pub fn new(extra: &[String], home: Option<&Path>, data_dir: Option<&Path>) -> Self {
        let known = KNOWN.iter().flat_map(|(what, patterns)| patterns.iter().map(move |text| (*text, *what)));
        let mut rules: Vec<_> = known.filter_map(|(text, what)| Some((Pattern::parse(text, None)?, what))).collect();
        let listed = "what the operator listed as secret (shell.secret_paths)";
        rules.extend(extra.iter().filter_map(|text| Some((Pattern::parse(text, home)?, listed))));
        // A path may lead through a link; where it ends is as secret.
        let named: Vec<&Path> = extra.iter().filter_map(|text| Pattern::literal_path(text)).collect();
        rules.extend(named.iter().filter_map(|path| Some((Pattern::exactly(&fs::canonicalize(path).ok()?), listed))));
        for folder in
            data_dir.into_iter().flat_map(|path| [std::path::absolute(path).ok(), fs::canonicalize(path).ok()])
        {
            rules.extend(folder.map(|folder| (Pattern::exactly(&lexical(&folder)), "the hub's own keys and records")));
        }
        Self {
            by_inode: BY_INODE.iter().map(Path::new).chain(named).map(Path::to_owned).collect(),
            rules,
            ssh: Pattern::parse(".ssh", None),
            open_in_ssh: OPEN_IN_SSH.iter().filter_map(|name| Pattern::parse(&format!(".ssh/{name}"), None)).collect(),
        }
    }

    /// Looks at the letters of an absolute path. Ask with the path as given and with where it really leads.
    pub fn check_path(&self, path: &Path) -> Result<(), Secret> {
        let names = names(&lexical(path));
        let what = self.rules.iter().find(|(pattern, _)| pattern.covers(&names)).map(|(_, what)| *what);
        match what.or_else(|| self.is_ssh_key(&names).then_some("a private key")) {
            Some(what) => Err(Secret { path: shown(path), what }),
            None => Ok(()),
        }
    }

    /// Looks at the file itself, in case it has a second name.
    pub fn check_inode(&self, path: &Path, file: &Metadata) -> Result<(), Secret> {
        let same = |known: &PathBuf| {
            fs::metadata(known).is_ok_and(|known| (known.dev(), known.ino()) == (file.dev(), file.ino()))
        };
        if file.nlink() > 1 && self.by_inode.iter().any(same) {
            return Err(Secret { path: shown(path), what: "a secret under another name" });
        }
        Ok(())
    }

    /// Looks for a private key in what would be shown.
    pub fn check_content(&self, path: &Path, content: &[u8]) -> Result<(), Secret> {
        if holds_private_key(content) {
            return Err(Secret { path: shown(path), what: "a private key" });
        }
        Ok(())
    }

    /// Directly in the folder: a deeper path that ends like an open file is not that file.
    fn is_ssh_key(&self, names: &[String]) -> bool {
        let Some(ssh) = &self.ssh else { return false };
        let open = |at: usize| self.open_in_ssh.iter().any(|open| open.covers(&names[at..])) && names.len() == at + 2;
        ssh.covers(names) && !names.iter().rposition(|name| name == ".ssh").is_some_and(open)
    }
}

fn shown(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

/// A key's first line alone on its line, or one inside a string with the key after it. A text that only talks of
/// such lines is not one.
fn holds_private_key(content: &[u8]) -> bool {
    let text = String::from_utf8_lossy(content);
    text.match_indices("-----BEGIN ").any(|(at, _)| {
        let label = &text[at + 11..];
        let Some(end) = label.find("-----").filter(|end| *end < 60) else { return false };
        if !label[..end].ends_with("PRIVATE KEY") && !label[..end].ends_with("PRIVATE KEY BLOCK") {
            return false;
        }
        let before = text[..at].rsplit('\n').next().unwrap_or_default();
        let alone = before.trim_matches(['\u{feff}', ' ', '\t', '|', '>', '-']).is_empty();
        alone || is_key_material(&label[end + 5..])
    }) || text.lines().any(|line| line.starts_with("PuTTY-User-Key-File-") || line.starts_with("AGE-SECRET-KEY-1"))
}

fn is_key_material(after: &str) -> bool {
    let after = &after[..after.floor_char_boundary(200)];
    let body = after.replacen("\\r", "", 1).replacen("\\n", "", 1);
    let body = body.trim_start();
    body.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=')).take(32).count() == 32
}

#[cfg(test)]
mod tests;
