//! Connecting to a server, once.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tracing::warn;

use nexus_core::text::{clean, cut};

use super::opening::Opening;
use super::{Inner, learn};
use crate::upstream::client::{Client, Options};
use crate::upstream::config::ServerConfig;
use crate::upstream::error::{ConfigurationError, TransportError, UpstreamError};
use crate::upstream::pins::MemoryError;

/// Closing a server takes up to four seconds: two for each signal.
pub const CLOSE_PATIENCE: Duration = Duration::from_secs(6);

/// Characters of an error that anybody has to read.
const LONGEST_WHY: usize = 300;

/// Why a server could not be connected.
#[derive(Debug)]
pub enum Trouble {
    /// Trying again would not help.
    Configuration(String),
    Failed(String),
}

impl Trouble {
    /// What went wrong with that server, and what to do about it where that is known.
    pub fn of(error: UpstreamError, config: &ServerConfig) -> Self {
        match error {
            UpstreamError::Configuration(error) => error.into(),
            UpstreamError::Transport(TransportError::Unauthorized { url, status, .. }) => {
                Self::Failed(told(&match config.identifies() {
                    true => format!("{url} refused the `Authorization` of its entry (HTTP {status})"),
                    false => format!("{url} wants to know who asks (HTTP {status}): `nexus mcp login {}`", config.name),
                }))
            }
            error => Self::Failed(told(&error.to_string())),
        }
    }

    pub fn why(&self) -> &str {
        match self {
            Trouble::Configuration(why) | Trouble::Failed(why) => why,
        }
    }
}

impl From<ConfigurationError> for Trouble {
    fn from(error: ConfigurationError) -> Self {
        Trouble::Configuration(told(&error.to_string()))
    }
}

impl From<MemoryError> for Trouble {
    fn from(error: MemoryError) -> Self {
        Trouble::Failed(told(&error.to_string()))
    }
}

/// One line for people.
pub fn told(why: &str) -> String {
    let line: String = clean(why).chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    cut(line.trim(), LONGEST_WHY).into_owned()
}

/// Connects and learns what the server has. The second part is what is wrong with it all the same.
pub async fn establish(inner: &Arc<Inner>) -> Result<(Client, Option<String>), Trouble> {
    let name = &inner.config.name;
    let connector = inner.connector()?;
    let remembered = inner.parts.memory.era(name).await?;
    let mut options = Options::new(inner.parts.tasks.clone());
    options.era = inner.config.era;
    options.remembered = remembered;
    options.timeout = inner.config.timeout;
    options.capabilities = inner.parts.capabilities.clone();
    options.host = inner.signals.clone();
    let opening = Opening::new(connector, inner.parts.tasks.clone(), inner.rest.clone());
    let met = async {
        let client = Client::connect(opening.clone(), options).await;
        let client = client.map_err(|error| Trouble::of(error, &inner.config))?;
        let fault = learn::learn(inner, &client).await?;
        let era = client.server().era;
        if remembered != Some(era) {
            inner.parts.memory.remember_era(name, era).await?;
        }
        Ok((client, fault))
    };
    let met = met.await;
    match met {
        Ok(_) => opening.succeeded(),
        // Before it is tried again.
        Err(_) => opening.end().await,
    }
    met
}

/// Closes a connection and sees that nothing is left of it.
pub async fn close(client: &Client) {
    if timeout(CLOSE_PATIENCE, client.close()).await.is_err() {
        warn!("a server could not be closed in time");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::config::{Endpoint, HttpEndpoint};

    #[test]
    fn a_login_is_advised_only_where_the_entry_has_no_authorization_of_its_own() {
        check(&[], "nexus mcp login x", "of its entry");
        check(&[("authorization", "Bearer secret")], "refused the `Authorization` of its entry", "login");

        #[track_caller]
        fn check(headers: &[(&str, &str)], says: &str, never: &str) {
            let mut http = HttpEndpoint::new("https://x.example/mcp");
            http.headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let config = ServerConfig::new("x", Endpoint::Http(http));
            let error =
                TransportError::Unauthorized { url: "https://x.example/mcp".into(), status: 401, challenge: None };
            let trouble = Trouble::of(error.into(), &config);
            assert!(trouble.why().contains(says) && !trouble.why().contains(never), "{trouble:?}");
            assert!(!trouble.why().contains("secret"), "{trouble:?}");
        }
    }
}
