//! Which files hold secrets, by name and by content. `read_file` asks nobody, so it must not read these.

mod key;
mod pattern;

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nexus_core::ToolError;
use nexus_core::text::one_line;
use thiserror::Error;

use crate::path::lexical;
use crate::toolbox::Settings;
pub use key::OpenKey;
use key::holds_private_key;
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
            "var/backups/*shadow*",
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

/// Files that are known under any other name, too: a hard link or a bind mount looks like any file. So are those the
/// operator names.
const BY_INODE: &[&str] = &[
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/security/opasswd",
    "/var/backups/shadow.bak",
    "/var/backups/gshadow.bak",
];

/// Below these a name is a number, and means another file a moment later.
const PASSING: &[&str] = &["/dev/fd", "/dev/stdin", "/proc"];

/// The rules.
#[derive(Debug)]
pub struct Secrets {
    rules: Vec<(Pattern, &'static str)>,
    places: Vec<Place>,
    ssh: Option<Pattern>,
    open_in_ssh: Vec<Pattern>,
}

/// A file or folder that was named, and what it holds. Looked up anew with every read: it may be made after the start,
/// and a link in its path may be turned.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    what: &'static str,
}

/// The reason a file is not shown.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{path} is not shown: it holds {what}")]
pub struct Secret {
    path: String,
    what: &'static str,
}

impl Secret {
    pub fn private_key(path: &Path) -> Self {
        Self { path: shown(path), what: "a private key" }
    }
}

impl From<Secret> for ToolError {
    fn from(secret: Secret) -> Self {
        ToolError::refused(secret).hint(
            "nobody is asked before a read; if a human wants this shown, use run_command, which asks for approval",
        )
    }
}

impl Secrets {
    pub fn new(settings: &Settings) -> Self {
        let Settings { secret_paths, secret_files, home, data_dir, .. } = settings;
        let home = home.as_deref();
        let known = KNOWN.iter().flat_map(|(what, patterns)| patterns.iter().map(move |text| (*text, *what)));
        let mut rules: Vec<_> = known.filter_map(|(text, what)| Some((Pattern::parse(text, None)?, what))).collect();
        let listed = "what the operator listed as secret (shell.secret_paths)";
        rules.extend(secret_paths.iter().filter_map(|text| Some((Pattern::parse(text, home)?, listed))));

        let named = secret_paths.iter().filter_map(|text| Some((Pattern::literal_path(text)?, listed)));
        let files = secret_files.iter().map(|path| (path.as_path(), "a key or password of the hub"));
        let folder = data_dir.iter().map(|path| (path.as_path(), "the hub's own keys and records"));
        let places = named.chain(files).chain(folder).flat_map(|(path, what)| Place::all_of(path, home, what));
        Self {
            places: places.collect(),
            rules,
            ssh: Pattern::parse(".ssh", None),
            open_in_ssh: OPEN_IN_SSH.iter().filter_map(|name| Pattern::parse(&format!(".ssh/{name}"), None)).collect(),
        }
    }

    /// Looks at an absolute path. Ask with the path as given and with where it really leads.
    pub fn check_path(&self, path: &Path) -> Result<(), Secret> {
        let names = names(&lexical(path));
        let by_rule = || self.rules.iter().find(|(pattern, _)| pattern.covers(&names)).map(|(_, what)| *what);
        let by_place = || self.places.iter().find(|place| place.covers(&names)).map(|place| place.what);
        match by_rule().or_else(|| self.is_ssh_key(&names).then_some("a private key")).or_else(by_place) {
            Some(what) => Err(Secret { path: shown(path), what }),
            None => Ok(()),
        }
    }

    /// Looks at the file itself, in case it has a second name.
    pub fn check_inode(&self, path: &Path, file: &Metadata) -> Result<(), Secret> {
        let same = |known: &Path| {
            fs::metadata(known).is_ok_and(|known| (known.dev(), known.ino()) == (file.dev(), file.ino()))
        };
        let named = self.places.iter().map(|place| place.path.as_path());
        if BY_INODE.iter().map(Path::new).chain(named).any(same) {
            return Err(Secret { path: shown(path), what: "a secret under another name" });
        }
        Ok(())
    }

    /// Looks for a private key in what would be shown.
    pub fn check_content(&self, path: &Path, content: &[u8]) -> Result<(), Secret> {
        if holds_private_key(content) { Err(Secret::private_key(path)) } else { Ok(()) }
    }

    /// Directly in the folder: a deeper path that ends like an open file is not that file.
    fn is_ssh_key(&self, names: &[String]) -> bool {
        let Some(ssh) = &self.ssh else { return false };
        let open = |at: usize| self.open_in_ssh.iter().any(|open| open.covers(&names[at..])) && names.len() == at + 2;
        ssh.covers(names) && !names.iter().rposition(|name| name == ".ssh").is_some_and(open)
    }
}

impl Place {
    /// The path as named, and where it leads at the start: what the hub has read there stays secret when a link is
    /// turned later.
    fn all_of(path: &Path, home: Option<&Path>, what: &'static str) -> impl Iterator<Item = Self> {
        let path = match (path.strip_prefix("~"), home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => path.to_owned(),
        };
        let named = std::path::absolute(&path).ok().map(|path| lexical(&path));
        let named = named.filter(|path| !PASSING.iter().any(|folder| path.starts_with(folder)));
        let real = fs::canonicalize(&path).ok().filter(|real| Some(real) != named.as_ref());
        let somewhere = |path: &PathBuf| path.file_name().is_some();
        [named, real].into_iter().flatten().filter(somewhere).map(move |path| Self { path, what })
    }

    fn covers(&self, names: &[String]) -> bool {
        let covers = |path: &Path| Pattern::exactly(path).covers(names);
        covers(&self.path) || self.really().is_some_and(|real| covers(&real))
    }

    /// Where it is now, or would be.
    fn really(&self) -> Option<PathBuf> {
        let beside = || Some(fs::canonicalize(self.path.parent()?).ok()?.join(self.path.file_name()?));
        fs::canonicalize(&self.path).ok().or_else(beside)
    }
}

fn shown(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

#[cfg(test)]
mod tests;
