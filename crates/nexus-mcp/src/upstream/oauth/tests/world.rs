//! A server and its authorization server in one, somebody who says yes, and logins of before.

use std::collections::HashMap;
use std::net::SocketAddr;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use nexus_core::audit::Nowhere;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::super::*;
use crate::upstream::config::HttpEndpoint;

/// Server and authorization server in one, and all that they were asked.
#[derive(Debug)]
pub(super) struct World {
    pub(super) base: String,
    asked: Mutex<Vec<String>>,
    /// By path; what is missing is 404.
    pub(super) pages: Mutex<HashMap<String, Value>>,
    /// What the next token requests get; then `token-N` and `refresh-N`.
    pub(super) tokens: Mutex<Vec<(u16, Value)>>,
    given: Mutex<u32>,
}

impl World {
    pub(super) async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let base = format!("http://{address}");
        let pages = HashMap::from([
            (
                "/.well-known/oauth-protected-resource/mcp".to_owned(),
                json!({ "resource": format!("{base}/mcp"), "authorization_servers": [base], "scopes_supported": ["a"] }),
            ),
            ("/.well-known/oauth-authorization-server".to_owned(), metadata(&base)),
            ("/register".to_owned(), json!({ "client_id": "registered" })),
        ]);
        let world = Arc::new(Self {
            base,
            asked: Mutex::default(),
            pages: Mutex::new(pages),
            tokens: Mutex::default(),
            given: Mutex::default(),
        });
        let app = axum::Router::new().fallback(answer).with_state(world.clone());
        Tasks::new().spawn("authorization server", async move { axum::serve(listener, app).await });
        world
    }

    pub(super) fn oauth(&self) -> OAuth {
        self.oauth_with(Identity { name: "Nexus".to_owned(), ..Identity::default() }, Arc::new(InMemory::default()))
    }

    pub(super) fn oauth_with(&self, identity: Identity, store: Arc<dyn TokenStore>) -> OAuth {
        let web = Web::new(&HttpEndpoint::new(format!("{}/mcp", self.base)), Arc::new(Nowhere)).unwrap();
        OAuth::new(web, identity, store, Tasks::new())
    }

    pub(super) fn page(&self, path: &str, change: impl FnOnce(&mut Value)) {
        change(self.pages.lock().entry(path.to_owned()).or_default());
    }

    /// What was asked since the last time, each as method, path and body.
    pub(super) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock())
    }
}

pub(super) fn metadata(base: &str) -> Value {
    json!({
        "issuer": base,
        "authorization_endpoint": format!("{base}/authorize"),
        "token_endpoint": format!("{base}/token"),
        "registration_endpoint": format!("{base}/register"),
        "code_challenge_methods_supported": ["S256"],
        "scopes_supported": ["a", "offline_access"],
    })
}

pub(super) async fn answer(
    State(world): State<Arc<World>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body = String::from_utf8(body.to_vec()).unwrap();
    let proof = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    world.asked.lock().push(format!("{method} {} {body} {proof}", uri.path()).trim_end().to_owned());
    if uri.path() == "/token" {
        let scripted =
            Some(&mut world.tokens.lock()).filter(|tokens| !tokens.is_empty()).map(|tokens| tokens.remove(0));
        let (status, body) = scripted.unwrap_or_else(|| {
            let mut given = world.given.lock();
            *given += 1;
            let (access, refresh) = (format!("token-{given}"), format!("refresh-{given}"));
            (
                200,
                json!({ "access_token": access, "token_type": "Bearer", "expires_in": 3600, "refresh_token": refresh }),
            )
        });
        return (StatusCode::from_u16(status).unwrap(), body.to_string()).into_response();
    }
    match world.pages.lock().get(uri.path()) {
        Some(page) => page.to_string().into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Says yes on every page, and keeps their addresses.
#[derive(Debug, Default)]
pub(super) struct Yes {
    pub(super) visited: Mutex<Vec<Url>>,
    /// Behind the answer.
    more: &'static str,
}

impl Browser for Yes {
    fn redirect_uri(&self) -> String {
        "http://127.0.0.1:1/callback".to_owned()
    }

    fn visit<'a>(&'a self, page: &'a Url, state: &'a str) -> BoxFuture<'a, Result<Url, OAuthError>> {
        self.visited.lock().push(page.clone());
        let came_to = format!("{}?code=C&state={state}{}", self.redirect_uri(), self.more);
        Box::pin(async move { Ok(Url::parse(&came_to).unwrap()) })
    }
}

impl Yes {
    pub(super) fn last(&self, field: &str) -> Option<String> {
        let visited = self.visited.lock();
        visited.last()?.query_pairs().find(|(name, _)| name == field).map(|(_, value)| value.into_owned())
    }
}

pub(super) async fn challenged(
    oauth: &OAuth,
    sent: Option<&str>,
    status: u16,
    challenge: &str,
) -> Result<bool, String> {
    match oauth.challenged(sent, status, Some(challenge)).await {
        Ok(outcome) => Ok(matches!(outcome, Challenged::Retry)),
        Err(error) => Err(error.to_string()),
    }
}

pub(super) fn grant(world: &World, token: &str, refresh: Option<&str>, renew_ms: Option<i64>) -> Grant {
    grant_at(&world.base, token, refresh, renew_ms)
}

pub(super) fn grant_at(base: &str, token: &str, refresh: Option<&str>, renew_ms: Option<i64>) -> Grant {
    let redirect_uri = "http://127.0.0.1:1/callback".to_owned();
    Grant {
        server: format!("{base}/mcp"),
        resource: format!("{base}/mcp"),
        issuer: base.to_owned(),
        token_endpoint: format!("{base}/token"),
        client: Client { id: "me".to_owned(), secret: None, proof: Proof::None, redirect_uri },
        access_token: token.to_owned(),
        refresh_token: refresh.map(str::to_owned),
        renew_ms,
        scopes: Vec::new(),
    }
}
