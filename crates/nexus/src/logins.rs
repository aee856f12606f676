//! Logins at upstream servers: one small file each in the data folder, that only the operator may read.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use nexus_core::audit::Sink;
use nexus_core::tasks::Tasks;
use nexus_mcp::upstream::config::{HttpEndpoint, ServerConfig};
use nexus_mcp::upstream::oauth::{Grant, Identity, OAuth, TokenStore, Web};
use nexus_mcp::upstream::registry::CredentialsFor;
use nexus_mcp::upstream::transport::http::Credentials;

use crate::private;

/// What the hub has of logins. It uses and renews them; new ones are made by `nexus mcp login`.
pub struct Logins {
    data: PathBuf,
    audit: Arc<dyn Sink>,
    tasks: Tasks,
}

impl Logins {
    pub fn new(data: &Path, audit: Arc<dyn Sink>, tasks: Tasks) -> Self {
        Self { data: data.to_owned(), audit, tasks }
    }
}

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logins").field("data", &self.data).finish_non_exhaustive()
    }
}

impl CredentialsFor for Logins {
    /// None for a server whose entry says itself who we are.
    fn credentials(&self, _: &ServerConfig, endpoint: &HttpEndpoint) -> Option<Arc<dyn Credentials>> {
        if endpoint.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
            return None;
        }
        let web = Web::new(endpoint, self.audit.clone()).ok()?;
        let login = Login::at(&self.data, web.server().as_str());
        Some(Arc::new(OAuth::new(web, Identity::default(), Arc::new(login), self.tasks.clone())))
    }
}

/// Bytes. Tokens are a few kilobytes at most.
const LARGEST: u64 = 256 * 1024;

/// The login at one address. It belongs to the address and not to a name: whoever writes another address under a known
/// name into an `mcp.json` gets nothing.
#[derive(Debug)]
pub struct Login {
    file: PathBuf,
}

impl Login {
    pub fn at(data: &Path, url: &str) -> Self {
        let hash: String = Sha256::digest(url.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Self { file: data.join("oauth").join(format!("{hash}.json")) }
    }

    /// Whether there was one.
    pub fn forget(&self) -> io::Result<bool> {
        match fs::remove_file(&self.file) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl TokenStore for Login {
    fn load(&self) -> io::Result<Option<Grant>> {
        match fs::metadata(&self.file) {
            Ok(found) if found.len() > LARGEST => return Err(io::Error::other("it is too large to be a login")),
            _ => {}
        }
        let Some(text) = private::read(&self.file)? else { return Ok(None) };
        // A file that makes no sense is told without its content.
        serde_json::from_str(&text).map(Some).map_err(|_| io::Error::other("the file of the login makes no sense"))
    }

    fn save(&self, grant: &Grant) -> io::Result<()> {
        if let Some(folder) = self.file.parent() {
            private::folder(folder)?;
        }
        private::replace(&self.file, &serde_json::to_string_pretty(grant)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    use nexus_mcp::upstream::oauth::{Client, Proof};

    fn grant(token: &str) -> Grant {
        let redirect_uri = "http://127.0.0.1:1/callback".to_owned();
        Grant {
            server: "https://a/mcp".to_owned(),
            resource: "https://a/mcp".to_owned(),
            issuer: "https://as".to_owned(),
            token_endpoint: "https://as/token".to_owned(),
            client: Client { id: "me".to_owned(), secret: Some("s".to_owned()), proof: Proof::Post, redirect_uri },
            access_token: token.to_owned(),
            refresh_token: None,
            renew_ms: Some(1),
            scopes: vec!["read".to_owned()],
        }
    }

    #[test]
    fn a_login_is_kept_privately_and_belongs_to_one_address() {
        let data = tempfile::tempdir().unwrap();
        let login = Login::at(data.path(), "https://a/mcp");
        assert_eq!(login.load().unwrap(), None);
        for token in ["one", "two"] {
            login.save(&grant(token)).unwrap();
            assert_eq!(login.load().unwrap(), Some(grant(token)));
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&login.file), mode(login.file.parent().unwrap())), (0o600, 0o700));
        assert_eq!(Login::at(data.path(), "https://b/mcp").load().unwrap(), None);
        assert!(login.forget().unwrap());
        assert!(!login.forget().unwrap());
        assert_eq!(login.load().unwrap(), None);
    }

    #[test]
    fn a_broken_file_is_told_without_what_is_in_it() {
        let data = tempfile::tempdir().unwrap();
        let login = Login::at(data.path(), "https://a/mcp");
        login.save(&grant("one")).unwrap();
        private::replace(&login.file, r#"{"access_token": "hunter2""#).unwrap();
        assert!(!login.load().unwrap_err().to_string().contains("hunter2"));
    }
}
