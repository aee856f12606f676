//! What a login gave, and where it is kept.

use std::fmt;
use std::io;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The outcome of a login: tokens, and what it takes to renew them. Belongs to one server and one issuer, and goes to
/// no other.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The address of the MCP server. Its tokens are for nobody else, also when an entry of that name changes.
    pub server: String,
    /// As the server publishes itself; sent with every token request (RFC 8707).
    pub resource: String,
    pub issuer: String,
    pub token_endpoint: String,
    pub client: Client,
    pub access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    /// When the access token is to be renewed, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_ms: Option<i64>,
    /// What was asked for; the next login asks for these too.
    #[serde(default)]
    pub scopes: Vec<String>,
}

/// Without the tokens.
impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("server", &self.server)
            .field("issuer", &self.issuer)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

/// What we are to one authorization server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    pub proof: Proof,
    /// The page it was registered with.
    pub redirect_uri: String,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.id).field("proof", &self.proof).finish_non_exhaustive()
    }
}

/// How a client proves itself where tokens are given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proof {
    #[serde(rename = "none")]
    None,
    #[serde(rename = "client_secret_basic")]
    Basic,
    #[serde(rename = "client_secret_post")]
    Post,
}

impl Proof {
    pub fn parse(method: &str) -> Option<Self> {
        match method {
            "none" => Some(Self::None),
            "client_secret_basic" => Some(Self::Basic),
            "client_secret_post" => Some(Self::Post),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
        }
    }
}

/// Keeps the grant of one server. Small and rarely called: it may block for as long as a small file takes.
pub trait TokenStore: fmt::Debug + Send + Sync {
    fn load(&self) -> io::Result<Option<Grant>>;
    fn save(&self, grant: &Grant) -> io::Result<()>;
}

/// As long as the process.
#[derive(Debug, Default)]
pub struct InMemory(Mutex<Option<Grant>>);

impl TokenStore for InMemory {
    fn load(&self) -> io::Result<Option<Grant>> {
        Ok(self.0.lock().clone())
    }

    fn save(&self, grant: &Grant) -> io::Result<()> {
        *self.0.lock() = Some(grant.clone());
        Ok(())
    }
}
