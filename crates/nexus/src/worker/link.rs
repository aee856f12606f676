//! The way to the hub: MCP over HTTP, tried again for ever.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use nexus_core::audit::Nowhere;
use nexus_core::session::Era;
use nexus_core::tasks::Tasks;
use nexus_mcp::upstream::client::{Ask, CallResult, Client, Options};
use nexus_mcp::upstream::config::{HttpEndpoint, HttpKind, Private};
use nexus_mcp::upstream::error::{ProtocolError, TransportError, UpstreamError};
use nexus_mcp::upstream::log::ServerLog;
use nexus_mcp::upstream::transport::http::HttpConnector;

use super::backoff::{self, Backoff};
use crate::config::env::Secret;
use crate::hold;
use crate::wire::VERSION;

/// For an answer that does not wait for anything. A machine that lost its power says no goodbye.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Where the hub is.
#[derive(Clone, Debug)]
pub enum Place {
    Given(String),
    /// Wherever the hub of this data folder says it is, else at the usual place.
    Folder(PathBuf),
}

const USUAL: &str = "http://127.0.0.1:8765/mcp";

impl Place {
    pub fn usual() -> Self {
        Place::Given(USUAL.to_owned())
    }

    fn url(&self) -> String {
        match self {
            Place::Given(url) => url.clone(),
            Place::Folder(data) => hold::holder(data).and_then(|holder| holder.mcp).unwrap_or_else(|| USUAL.to_owned()),
        }
    }
}

/// The hub says no, and will say so again.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Refused(pub String);

/// Why a call has no result.
#[derive(Clone, Debug)]
enum Trouble {
    Refused(String),
    /// The key, or this machine, is not let in.
    Barred(String),
    /// Nobody is there, or it has a fault.
    Away(String),
    /// It is there, and has too much to do.
    Busy,
}

pub struct Link {
    place: Place,
    key: Secret,
    tasks: Tasks,
    /// With the address that it belongs to.
    client: Mutex<Option<(String, Client)>>,
    mood: Mutex<Mood>,
    /// Counts how often the hub came back: whoever waits to try again need not wait on.
    back: watch::Sender<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Fine,
    Away,
    Barred,
}

/// Without the key.
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("place", &self.place).field("mood", &self.mood).finish_non_exhaustive()
    }
}

impl Link {
    pub fn new(place: Place, key: Secret, tasks: Tasks) -> Self {
        let back = watch::Sender::new(0);
        Self { place, key, tasks, client: Mutex::new(None), mood: Mutex::new(Mood::Fine), back }
    }

    /// The first words: waits for a hub that is not there, and takes no for an answer. Tells where the hub is.
    pub async fn greet(&self, target: &str) -> Result<String, Refused> {
        let mut backoff = Backoff::default();
        loop {
            match self.once("peek_tasks", &json!({ "target": target }), PATIENCE).await {
                Ok(_) => return Ok(self.client().await.map_or_else(|_| self.place.url(), |(url, _)| url)),
                Err(Trouble::Refused(why) | Trouble::Barred(why)) => return Err(Refused(why)),
                Err(trouble) => self.pause(&trouble, &mut backoff).await,
            }
        }
    }

    /// Calls a tool until the hub has answered. `patience` is how long one answer may take.
    pub async fn call(&self, tool: &str, arguments: &Value, patience: Duration) -> Result<Value, Refused> {
        let mut backoff = Backoff::default();
        loop {
            match self.once(tool, arguments, patience).await {
                Ok(reply) => return Ok(reply),
                Err(Trouble::Refused(why)) => return Err(Refused(why)),
                Err(trouble) => self.pause(&trouble, &mut backoff).await,
            }
        }
    }

    async fn once(&self, tool: &str, arguments: &Value, patience: Duration) -> Result<Value, Trouble> {
        let (url, client) = self.client().await?;
        let ask = Ask::tool(tool, &arguments.to_string()).within(patience);
        let reply = match client.call(ask).await {
            Ok(result) => read(&result),
            Err(failed) => Err(trouble(failed.error, &url)),
        };
        match &reply {
            Ok(_) | Err(Trouble::Refused(_)) => self.is_fine(&url),
            Err(Trouble::Away(_)) => self.look_again(&url),
            Err(Trouble::Barred(_) | Trouble::Busy) => {}
        }
        reply
    }

    /// The connection that is there, or a new one.
    async fn client(&self) -> Result<(String, Client), Trouble> {
        let known = self.client.lock().clone().filter(|(_, client)| client.is_connected());
        if let Some(known) = known {
            return Ok(known);
        }
        let url = self.place.url();
        let client = self.connect(&url).await.map_err(|error| trouble(error, &url))?;
        *self.client.lock() = Some((url.clone(), client.clone()));
        Ok((url, client))
    }

    /// The hub may come back at another port.
    fn look_again(&self, url: &str) {
        if let Place::Folder(_) = self.place {
            self.client.lock().take_if(|(known, _)| known == url);
        }
    }

    async fn connect(&self, url: &str) -> Result<Client, UpstreamError> {
        let mut endpoint = HttpEndpoint::new(url);
        endpoint.kind = HttpKind::Streamable;
        // Whoever types the address knows where it is.
        endpoint.allow_private = Private { all: true, some: Vec::new() };
        endpoint.headers = vec![("Authorization".to_owned(), format!("Bearer {}", self.key.expose()))];
        let log = Arc::new(ServerLog::new());
        let connector = HttpConnector::new(endpoint, Arc::new(Nowhere), None, log, self.tasks.clone());
        let options = Options {
            remembered: Some(Era::Modern),
            timeout: PATIENCE,
            name: "nexus-agent".into(),
            version: VERSION.into(),
            ..Options::new(self.tasks.clone())
        };
        Client::connect(Arc::new(connector), options).await
    }

    /// Says what is wrong, once, and waits.
    async fn pause(&self, trouble: &Trouble, backoff: &mut Backoff) {
        let mut back = self.back.subscribe();
        let (mood, why) = match trouble {
            Trouble::Away(why) => (Mood::Away, why),
            Trouble::Barred(why) | Trouble::Refused(why) => (Mood::Barred, why),
            Trouble::Busy => return sleep(backoff.next()).await,
        };
        if std::mem::replace(&mut *self.mood.lock(), mood) != mood {
            warn!("{why}; trying again until it works");
        }
        let wait = match mood {
            // Knocking with a wrong key more often opens no door.
            Mood::Barred => backoff::jittered(backoff::LONGEST),
            Mood::Fine | Mood::Away => backoff.next(),
        };
        tokio::select! {
            () = sleep(wait) => {}
            _ = back.changed() => {}
        }
    }

    fn is_fine(&self, url: &str) {
        if std::mem::replace(&mut *self.mood.lock(), Mood::Fine) != Mood::Fine {
            info!("the hub at {url} answers again");
            self.back.send_modify(|times| *times += 1);
        }
    }
}

fn trouble(error: UpstreamError, url: &str) -> Trouble {
    match error {
        UpstreamError::Transport(TransportError::Unauthorized { status: 403, .. }) => Trouble::Barred(format!(
            "the hub at {url} does not answer to that name; add it to its server.allowed_hosts"
        )),
        UpstreamError::Transport(TransportError::Unauthorized { .. } | TransportError::Login { .. }) => {
            Trouble::Barred(format!(
                "the hub at {url} does not take this key; `nexus key new NAME --target TARGET` makes one there"
            ))
        }
        UpstreamError::Transport(TransportError::Http { status: 429 | 503, .. }) => Trouble::Busy,
        UpstreamError::Protocol(ProtocolError::Rpc { message, .. }) => Trouble::Refused(message),
        UpstreamError::Transport(TransportError::Unreachable { reason, .. }) => {
            Trouble::Away(format!("the hub at {url} is not reachable ({reason})"))
        }
        error => Trouble::Away(format!("the hub at {url} is not reachable ({error})")),
    }
}

/// What a tool gave back.
fn read(result: &CallResult) -> Result<Value, Trouble> {
    let structured = result.structured().map_or("null", |raw| raw.get());
    let reply: Value = serde_json::from_str(structured).unwrap_or_default();
    if !result.is_error() {
        return Ok(reply);
    }
    let words = match reply["error"]["message"].as_str() {
        Some(message) => message.to_owned(),
        None => result.text(),
    };
    match reply["error"]["kind"].as_str() {
        // Its fault, not ours: it may be over in a moment.
        Some("failed" | "internal") => Err(Trouble::Away(format!("the hub has a fault ({words})"))),
        _ => Err(Trouble::Refused(words)),
    }
}
