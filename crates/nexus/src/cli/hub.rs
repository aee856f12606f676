//! The hub a command talks to: where it is, with which key, and a connection to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};

use nexus_core::audit::Nowhere;
use nexus_core::session::Era;
use nexus_core::tasks::Tasks;
use nexus_mcp::upstream::client::{Ask, Client, Host, Listener, Nobody, Options};
use nexus_mcp::upstream::config::{HttpEndpoint, HttpKind, Private};
use nexus_mcp::upstream::error::{Delivery, ProtocolError, RequestError, TransportError, UpstreamError};
use nexus_mcp::upstream::log::ServerLog;
use nexus_mcp::upstream::transport::http::HttpConnector;

use super::one_line;
use crate::config::Loaded;
use crate::wire::VERSION;
use crate::{hold, keyring};

/// A person sits before it and can stop it; a silent call is no reason to.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Pages of a listing. The hub has one.
const MOST_PAGES: usize = 100;

/// Where a hub is.
pub struct Reach {
    pub url: String,
    key: Option<String>,
    whose: Whose,
}

/// Without the key.
impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reach").field("url", &self.url).field("whose", &self.whose).finish_non_exhaustive()
    }
}

/// How the hub was found, for whoever cannot talk to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// It serves the data folder.
    Folder,
    /// The address was given.
    Given,
}

/// Whether there is somebody to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    Somebody,
    Nobody,
}

impl Reach {
    /// The hub at that address; else the one that serves the data folder, with the key that is kept there.
    pub fn find(loaded: &Loaded, url: Option<&str>, key: Option<&str>) -> Result<Self> {
        let given = key.map(str::to_owned);
        if let Some(url) = url {
            // The key in the data folder is for the hub of the data folder, and goes nowhere else.
            let key = given.or_else(|| loaded.config.environment.api_key.as_ref().map(|key| key.expose().to_owned()));
            return Ok(Self { url: whole(url)?, key, whose: Whose::Given });
        }
        let url = match hold::holder(&loaded.data) {
            Some(hold::Holder { mcp: Some(mcp), .. }) => mcp,
            _ => bail!("no hub is serving the data folder {}; start one with `nexus`", loaded.data.display()),
        };
        let key = match given {
            Some(key) => Some(key),
            None => keyring::stored_key(&loaded.config, &loaded.data)?,
        };
        if key.is_none() {
            bail!("this command needs a key: MCP_API_KEY, or the one a hub without configured keys makes itself");
        }
        Ok(Self { url, key, whose: Whose::Folder })
    }

    /// `era` is tried first: in the old one, servers behind the hub that speak it can ask whoever sits here, and the
    /// session is this connection; in the new one it is the lease of the key.
    pub async fn connect(&self, asks: Asks, era: Era, tasks: &Tasks, host: Option<Arc<dyn Host>>) -> Result<Client> {
        let mut endpoint = HttpEndpoint::new(&self.url);
        endpoint.kind = HttpKind::Streamable;
        // Whoever types the address knows where it is.
        endpoint.allow_private = Private { all: true, some: Vec::new() };
        endpoint.headers = self.key.iter().map(|key| ("Authorization".to_owned(), format!("Bearer {key}"))).collect();
        let connector =
            HttpConnector::new(endpoint, Arc::new(Nowhere), None, Arc::new(ServerLog::new()), tasks.clone());
        let options = Options {
            remembered: Some(era),
            capabilities: match asks {
                Asks::Somebody => json!({ "elicitation": { "form": {} } }),
                Asks::Nobody => json!({}),
            },
            host: host.unwrap_or_else(|| Arc::new(Nobody)),
            name: "nexus-cli".into(),
            version: VERSION.into(),
            ..Options::new(tasks.clone())
        };
        match Client::connect(Arc::new(connector), options).await {
            Ok(client) => Ok(client),
            Err(UpstreamError::Transport(TransportError::Unauthorized { .. })) => Err(self.wrong_key()),
            Err(error) => Err(error).with_context(|| format!("talking to the hub at {}", self.url)),
        }
    }

    fn wrong_key(&self) -> anyhow::Error {
        let url = &self.url;
        match (&self.key, self.whose) {
            (None, _) => anyhow!("the hub at {url} wants a key: --key KEY, or MCP_API_KEY"),
            (Some(_), Whose::Given) => anyhow!("the hub at {url} does not take this key"),
            (Some(_), Whose::Folder) => {
                anyhow!("the hub at {url} does not take this key; is MCP_API_KEY the one it was started with?")
            }
        }
    }
}

/// `http://hub.lan:8765` is short for the same with `/mcp`.
pub fn whole(url: &str) -> Result<String> {
    let Some((scheme @ ("http" | "https"), rest)) = url.split_once("://") else {
        bail!("`{url}` is not the address of a hub; it looks like http://127.0.0.1:8765/mcp");
    };
    Ok(match rest.split_once('/') {
        None | Some((_, "")) => format!("{scheme}://{}/mcp", rest.trim_end_matches('/')),
        Some(_) => url.to_owned(),
    })
}

/// The tools, as the hub lists them. Not [`Client::list`]: a hub may have more tools than one may take from a stranger.
pub async fn tools(client: &Client) -> Result<Vec<Value>> {
    let mut tools = Vec::new();
    let mut cursor = None;
    for _ in 0..MOST_PAGES {
        let fields = cursor.map_or_else(String::new, |cursor: Value| format!(r#""cursor":{cursor}"#));
        let listed = client.request(Ask::new("tools/list").with(fields)).await.map_err(told)?;
        let mut listed: Value = serde_json::from_str(listed.get())?;
        match listed["tools"].take() {
            Value::Array(page) => tools.extend(page),
            _ => bail!("the hub's answer makes no sense: no list of tools"),
        }
        cursor = Some(listed["nextCursor"].take()).filter(Value::is_string);
        if cursor.is_none() {
            break;
        }
    }
    Ok(tools)
}

/// Calls a tool and gives its whole result, after as many questions as it takes.
pub async fn call(client: &Client, tool: &str, arguments: &Value, listener: Arc<dyn Listener>) -> Result<Value> {
    let mut ask = Ask::tool(tool, &arguments.to_string()).listened_by(listener).within(PATIENCE);
    ask.log_level = Some("info");
    let result = client.call(ask).await.map_err(told)?;
    Ok(serde_json::from_str(result.raw().get())?)
}

/// A failure in words for the person: what went wrong, and whether it may have happened all the same.
fn told(failed: RequestError) -> anyhow::Error {
    let RequestError { error, delivery } = failed;
    match (error, delivery) {
        (UpstreamError::Protocol(ProtocolError::Rpc { code, message, .. }), _) => {
            anyhow!("the hub refused: {} ({code})", one_line(&message))
        }
        (error, Delivery::MayHaveHappened) => {
            anyhow!("{error}; it may have happened all the same, so look before you repeat it")
        }
        (error, Delivery::NotSent | Delivery::Answered) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_leave_out_the_path() {
        check("http://hub.lan:8765", Some("http://hub.lan:8765/mcp"));
        check("https://hub.lan/", Some("https://hub.lan/mcp"));
        check("https://hub.lan/nexus/mcp", Some("https://hub.lan/nexus/mcp"));
        check("hub.lan", None);
        check("ftp://hub.lan/mcp", None);

        #[track_caller]
        fn check(url: &str, expected: Option<&str>) {
            assert_eq!(whole(url).ok().as_deref(), expected, "{url}");
        }
    }
}
