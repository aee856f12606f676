//! Where things are kept elsewhere: Git remotes, branch names, the database.

use std::fmt;
use std::str::FromStr;

use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use sqlx::postgres::PgConnectOptions;

use nexus_core::redact;

use super::net::host_port;
use super::text;
use crate::config::faults::Problem;
use crate::config::section::Value;

/// A Git remote: a URL, `user@host:path` or a local folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GitRemote(String);

impl AsRef<str> for GitRemote {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Value for GitRemote {
    fn kind() -> String {
        "a git remote".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        let wrong = || Problem::not(text, "a git remote");
        let example = "git@github.com:you/playbooks.git or https://github.com/you/playbooks.git";
        // A dash would be an option to git, and `::` a helper program that it starts.
        if text.starts_with('-') || text.contains("::") || text.contains(|c: char| c.is_whitespace() || c.is_control())
        {
            return Err(wrong().hint(example));
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            return by_url(scheme, rest)
                .map(|()| Self(text.to_owned()))
                .map_err(|problem| problem.unwrap_or_else(|| wrong().hint(example)));
        }
        if text.starts_with('/') {
            return Ok(Self(text.to_owned()));
        }
        let Some((user, rest)) = text.split_once('@') else { return Err(wrong().hint(example)) };
        match rest.split_once([':', '/']) {
            Some((host, path)) if host_port(host).is_none() || path.is_empty() || user.is_empty() => {
                Err(wrong().hint(example))
            }
            Some((host, path)) if rest.as_bytes()[host.len()] == b'/' => {
                let path = path.trim_end_matches('/');
                let path = path.strip_suffix(".git").unwrap_or(path);
                Err(wrong().note("a colon belongs between host and path").hint(format!("{user}@{host}:{path}.git")))
            }
            Some(_) => Ok(Self(text.to_owned())),
            None => Err(wrong().hint(example)),
        }
    }
}

/// `Err(None)`: not a remote, and nothing better to say about it.
fn by_url(scheme: &str, rest: &str) -> Result<(), Option<Problem>> {
    if scheme == "file" {
        return if rest.starts_with('/') { Ok(()) } else { Err(None) };
    }
    if !matches!(scheme, "http" | "https" | "ssh" | "git") {
        return Err(None);
    }
    let (authority, path) = rest.split_once('/').ok_or(None)?;
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if scheme.starts_with("http") && user.is_some() || user.is_some_and(|user| user.contains(':')) {
        let problem = Problem::new("a git remote must not hold credentials");
        return Err(Some(problem.hint("the token comes from GIT_TOKEN or GIT_TOKEN_FILE")));
    }
    if host.starts_with('-') || host_port(host).is_none() || path.is_empty() {
        return Err(None);
    }
    Ok(())
}

text! {
    /// What the names of draft branches start with.
    BranchPrefix, "the start of a git branch name",
    |text| !text.is_empty()
        && !text.starts_with(['/', '-', '.'])
        && !["..", "//", "/.", "@{", ".lock/"].iter().any(|bad| text.contains(bad))
        && !text.contains(|c: char| c.is_control() || c.is_whitespace() || "~^:?*[\\".contains(c))
}

text! {
    /// A zone at Cloudflare.
    ZoneId, "a Cloudflare zone id (32 hexadecimal digits)",
    |text| text.len() == 32 && text.bytes().all(|c| c.is_ascii_hexdigit())
}

/// Where a PostgreSQL is. Shown without its password.
#[derive(Clone)]
pub struct PostgresUrl(SecretString);

impl PostgresUrl {
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// The password in it, which a file must not hold.
    pub fn password(&self) -> Option<&str> {
        let (_, rest) = self.expose().split_once("://")?;
        let authority = rest.split(['/', '?']).next()?;
        let (user, _) = authority.rsplit_once('@')?;
        let password = user.split_once(':').map(|(_, password)| password);
        password.or_else(|| self.expose().split_once("password=")?.1.split('&').next())
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl PostgresUrl {
    fn shown(&self) -> String {
        let url = self.expose();
        match self.password() {
            Some(password) if !password.is_empty() => url.replace(password, redact::HIDDEN),
            _ => url.to_owned(),
        }
    }
}

impl Serialize for PostgresUrl {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.shown())
    }
}

impl Value for PostgresUrl {
    fn kind() -> String {
        "a `postgres://` URL".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        let postgres = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
        // The problem must not repeat the text: it may hold a password.
        if !postgres || PgConnectOptions::from_str(text).is_err() {
            return Err(Problem::new("is not a `postgres://` URL")
                .hint("postgres://nexus@db.lan/nexus; left out, SQLite in the data folder is used"));
        }
        Ok(Self(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_remotes_are_told_from_things_that_look_like_them() {
        for good in [
            "git@github.com:you/playbooks.git",
            "https://github.com/you/playbooks.git",
            "ssh://git@git.lan:2222/you/playbooks.git",
            "http://git.lan:3000/you/playbooks",
            "file:///srv/git/playbooks",
            "/srv/git/playbooks",
        ] {
            check(good, None);
        }
        for bad in
            ["", "github.com", "--upload-pack=x", "ext::sh -c x", "https://", "https://host", "git@:x", "ftp://h/x"]
        {
            check(bad, Some("git@github.com:you/playbooks.git or https://github.com/you/playbooks.git"));
        }
        check("git@github.com/you/playbooks", Some("git@github.com:you/playbooks.git"));
        check("git@github.com/you/playbooks.git", Some("git@github.com:you/playbooks.git"));
        check("https://you:s3cret@github.com/you/x", Some("the token comes from GIT_TOKEN or GIT_TOKEN_FILE"));

        #[track_caller]
        fn check(text: &str, hint: Option<&str>) {
            let problem = GitRemote::parse(text).err();
            let printed = problem.as_ref().map(|problem| format!("{problem:?}")).unwrap_or_default();
            assert_eq!(problem.is_some(), hint.is_some(), "{text}: {printed}");
            assert!(printed.contains(hint.unwrap_or_default()), "{text}: {printed}");
            assert!(!printed.contains("s3cret"), "{printed}");
        }
    }
}
