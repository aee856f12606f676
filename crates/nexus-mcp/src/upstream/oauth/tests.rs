//! Logins against an authorization server that is scripted in memory, over real HTTP.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use nexus_core::audit::Nowhere;
use nexus_core::clock;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;
use crate::upstream::config::HttpEndpoint;

/// Server and authorization server in one, and all that they were asked.
#[derive(Debug)]
struct World {
    base: String,
    asked: Mutex<Vec<String>>,
    /// By path; what is missing is 404.
    pages: Mutex<HashMap<String, Value>>,
    /// What the next token requests get; then `token-N` and `refresh-N`.
    tokens: Mutex<Vec<(u16, Value)>>,
    given: Mutex<u32>,
}

impl World {
    async fn start() -> Arc<Self> {
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

    fn oauth(&self) -> OAuth {
        self.oauth_with(Identity { name: "Nexus".to_owned(), ..Identity::default() }, Arc::new(InMemory::default()))
    }

    fn oauth_with(&self, identity: Identity, store: Arc<dyn TokenStore>) -> OAuth {
        let web = Web::new(&HttpEndpoint::new(format!("{}/mcp", self.base)), Arc::new(Nowhere)).unwrap();
        OAuth::new(web, identity, store, Tasks::new())
    }

    fn page(&self, path: &str, change: impl FnOnce(&mut Value)) {
        change(self.pages.lock().entry(path.to_owned()).or_default());
    }

    /// What was asked since the last time, each as method, path and body.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock())
    }
}

fn metadata(base: &str) -> Value {
    json!({
        "issuer": base,
        "authorization_endpoint": format!("{base}/authorize"),
        "token_endpoint": format!("{base}/token"),
        "registration_endpoint": format!("{base}/register"),
        "code_challenge_methods_supported": ["S256"],
        "scopes_supported": ["a", "offline_access"],
    })
}

async fn answer(
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
struct Yes {
    visited: Mutex<Vec<Url>>,
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
    fn last(&self, field: &str) -> Option<String> {
        let visited = self.visited.lock();
        visited.last()?.query_pairs().find(|(name, _)| name == field).map(|(_, value)| value.into_owned())
    }
}

async fn challenged(oauth: &OAuth, sent: Option<&str>, status: u16, challenge: &str) -> Result<bool, String> {
    match oauth.challenged(sent, status, Some(challenge)).await {
        Ok(outcome) => Ok(matches!(outcome, Challenged::Retry)),
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::test]
async fn a_refused_request_leads_through_a_login_to_a_token() {
    let (world, person) = (World::start().await, Arc::new(Yes::default()));
    let oauth = world.oauth().with_browser(person.clone());
    assert_eq!(oauth.bearer().await, None);
    assert_eq!(challenged(&oauth, None, 401, "Bearer").await, Ok(true));
    assert_eq!(oauth.bearer().await.as_deref(), Some("token-1"));

    let asked = world.asked();
    assert_eq!(
        asked[..2],
        ["GET /.well-known/oauth-protected-resource/mcp", "GET /.well-known/oauth-authorization-server"]
    );
    assert!(
        asked[2].starts_with("POST /register ") && asked[2].contains(r#""application_type":"native""#),
        "{asked:?}"
    );
    let challenge = person.last("code_challenge").unwrap();
    let verifier = asked[3].split("code_verifier=").nth(1).unwrap().split('&').next().unwrap();
    assert_eq!(encode::s256(verifier), challenge);
    assert!(asked[3].contains("&client_id=registered") && asked[3].contains("&resource=http%3A%2F%2F"), "{asked:?}");
    assert_eq!(person.last("scope").as_deref(), Some("a offline_access"));
    assert_eq!(person.last("resource"), Some(format!("{}/mcp", world.base)));
}

#[tokio::test]
async fn without_a_person_a_refusal_stands() {
    let world = World::start().await;
    assert_eq!(challenged(&world.oauth(), None, 401, "Bearer").await, Ok(false));
    assert!(world.asked().is_empty());
}

#[tokio::test]
async fn more_scopes_are_asked_for_on_top_and_never_twice() {
    let (world, person) = (World::start().await, Arc::new(Yes::default()));
    let oauth = world.oauth().with_browser(person.clone());
    assert_eq!(challenged(&oauth, None, 401, r#"Bearer scope="read""#).await, Ok(true));
    let more = r#"Bearer error="insufficient_scope", scope="write""#;
    assert_eq!(challenged(&oauth, Some("token-1"), 403, more).await, Ok(true));
    assert_eq!(person.last("scope").as_deref(), Some("read offline_access write"));
    assert_eq!(challenged(&oauth, Some("token-2"), 403, more).await, Ok(false));
    assert_eq!(challenged(&oauth, Some("token-2"), 403, "Bearer").await, Ok(false));
    assert_eq!(person.visited.lock().len(), 2);
}

#[tokio::test]
async fn a_server_that_refuses_for_ever_is_given_up() {
    let (world, person) = (World::start().await, Arc::new(Yes::default()));
    let oauth = world.oauth().with_browser(person.clone());
    let mut sent = None;
    for _ in 0..MOST_LOGINS {
        assert_eq!(challenged(&oauth, sent.as_deref(), 401, "Bearer").await, Ok(true));
        sent = oauth.bearer().await;
    }
    let refused = challenged(&oauth, sent.as_deref(), 401, "Bearer").await.unwrap_err();
    assert!(refused.contains("3 logins"), "{refused}");
}

#[tokio::test]
async fn one_renewal_serves_all_who_were_refused() {
    let world = World::start().await;
    let store = Arc::new(InMemory::default());
    store.save(&grant(&world, "old", Some("refresh-0"), None)).unwrap();
    let oauth = world.oauth_with(Identity::default(), store.clone());
    let all = futures_util::future::join_all((0..20).map(|_| challenged(&oauth, Some("old"), 401, "Bearer"))).await;
    assert!(all.iter().all(|one| *one == Ok(true)), "{all:?}");
    let asked = world.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(asked[0].contains("grant_type=refresh_token&refresh_token=refresh-0&resource="), "{asked:?}");
    assert_eq!(oauth.bearer().await.as_deref(), Some("token-1"));
    assert_eq!(store.load().unwrap().unwrap().refresh_token.as_deref(), Some("refresh-1"));
}

#[tokio::test]
async fn a_token_that_expires_soon_is_renewed_before_it_is_sent() {
    let world = World::start().await;
    let store = Arc::new(InMemory::default());
    store.save(&grant(&world, "old", Some("refresh-0"), Some(clock::now_ms() - 1))).unwrap();
    let oauth = world.oauth_with(Identity::default(), store);
    let (one, two) = tokio::join!(oauth.bearer(), oauth.bearer());
    assert_eq!((one.as_deref(), two.as_deref()), (Some("token-1"), Some("token-1")));
    assert_eq!(world.asked().len(), 1);
}

#[tokio::test]
async fn a_renewal_that_is_refused_leaves_the_refusal() {
    let world = World::start().await;
    let store = Arc::new(InMemory::default());
    store.save(&grant(&world, "old", Some("gone"), None)).unwrap();
    world.tokens.lock().push((400, json!({ "error": "invalid_grant" })));
    let oauth = world.oauth_with(Identity::default(), store);
    assert_eq!(challenged(&oauth, Some("old"), 401, "Bearer").await, Ok(false));
}

#[tokio::test]
async fn a_renewal_outlives_the_request_that_wanted_it() {
    let world = World::start().await;
    let store = Arc::new(InMemory::default());
    store.save(&grant(&world, "old", Some("refresh-0"), None)).unwrap();
    let oauth = world.oauth_with(Identity::default(), store);
    let mut given_up = Box::pin(challenged(&oauth, Some("old"), 401, "Bearer"));
    // Far enough to have begun, and no farther.
    assert!(futures_util::poll!(&mut given_up).is_pending());
    drop(given_up);
    assert_eq!(challenged(&oauth, Some("old"), 401, "Bearer").await, Ok(true));
    assert_eq!(oauth.bearer().await.as_deref(), Some("token-1"));
    assert_eq!(world.asked().len(), 1);
}

#[tokio::test]
async fn a_renewal_that_fails_is_not_tried_with_every_request() {
    let world = World::start().await;
    let store = Arc::new(InMemory::default());
    store.save(&grant(&world, "old", Some("refresh-0"), Some(clock::now_ms() - 1))).unwrap();
    world.tokens.lock().push((503, json!({})));
    let oauth = world.oauth_with(Identity::default(), store);
    for _ in 0..5 {
        assert_eq!(oauth.bearer().await.as_deref(), Some("old"));
    }
    assert_eq!(world.asked().len(), 1);
}

#[tokio::test]
async fn a_login_of_another_process_is_taken_up() {
    let world = World::start().await;
    let store = Arc::new(InMemory::default());
    let oauth = world.oauth_with(Identity::default(), store.clone());
    assert_eq!(oauth.bearer().await, None);
    store.save(&grant(&world, "theirs", None, None)).unwrap();
    assert_eq!(challenged(&oauth, None, 401, "Bearer").await, Ok(true));
    assert_eq!(oauth.bearer().await.as_deref(), Some("theirs"));
}

/// A store that another process has its hands in.
#[derive(Debug, Default)]
struct Shared(Mutex<Option<Grant>>);

impl TokenStore for Shared {
    fn load(&self) -> io::Result<Option<Grant>> {
        Ok(self.0.lock().clone())
    }

    fn save(&self, grant: &Grant) -> io::Result<()> {
        *self.0.lock() = Some(grant.clone());
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_logout_of_another_process_is_noticed() {
    let store = Arc::new(Shared::default());
    let web = Web::new(&HttpEndpoint::new("https://lab.example/mcp"), Arc::new(Nowhere)).unwrap();
    let oauth = OAuth::new(web, Identity::default(), store.clone(), Tasks::new());
    store.save(&grant_at("https://lab.example", "good", None, None)).unwrap();
    assert_eq!(oauth.bearer().await.as_deref(), Some("good"));
    *store.0.lock() = None;
    tokio::time::advance(std::time::Duration::from_secs(6)).await;
    assert_eq!(oauth.bearer().await, None);
}

#[tokio::test]
async fn scopes_of_the_operator_come_before_those_of_the_server() {
    let (world, person) = (World::start().await, Arc::new(Yes::default()));
    let identity = Identity { scopes: vec!["own".to_owned()], ..Identity::default() };
    let oauth = world.oauth_with(identity, Arc::new(InMemory::default())).with_browser(person.clone());
    assert_eq!(challenged(&oauth, None, 401, r#"Bearer scope="read""#).await, Ok(true));
    assert_eq!(person.last("scope").as_deref(), Some("own offline_access"));
    let more = r#"Bearer error="insufficient_scope", scope="write""#;
    assert_eq!(challenged(&oauth, Some("token-1"), 403, more).await, Ok(true));
    assert_eq!(person.last("scope").as_deref(), Some("own offline_access write"));
}

#[tokio::test]
async fn metadata_without_end_is_not_read() {
    let world = World::start().await;
    let endless = "x".repeat(1_000_000);
    world.page("/.well-known/oauth-protected-resource/mcp", |page| page["padding"] = json!(endless));
    let oauth = world.oauth().with_browser(Arc::new(Yes::default()));
    let refused = challenged(&oauth, None, 401, "Bearer").await.unwrap_err();
    assert!(refused.contains("larger than"), "{refused}");
}

#[tokio::test]
async fn tokens_go_to_no_other_address() {
    let world = World::start().await;
    let store = Arc::new(InMemory::default());
    let other = Grant { server: "https://elsewhere/mcp".to_owned(), ..grant(&world, "theirs", None, None) };
    store.save(&other).unwrap();
    assert_eq!(world.oauth_with(Identity::default(), store).bearer().await, None);
}

#[tokio::test]
async fn another_issuer_gets_no_client_of_the_first() {
    let (world, other) = (World::start().await, World::start().await);
    let oauth = world.oauth().with_browser(Arc::new(Yes::default()));
    assert_eq!(challenged(&oauth, None, 401, "Bearer").await, Ok(true));
    let moved = other.base.clone();
    world.page("/.well-known/oauth-protected-resource/mcp", |page| page["authorization_servers"] = json!([moved]));
    other.page("/register", |page| *page = json!({ "client_id": "second" }));
    assert_eq!(challenged(&oauth, Some("token-1"), 401, "Bearer").await, Ok(true));
    let asked = other.asked();
    assert!(asked.iter().any(|line| line.starts_with("POST /register ")), "{asked:?}");
    assert!(asked.iter().any(|line| line.contains("client_id=second")), "{asked:?}");
}

#[tokio::test]
async fn what_must_not_be_used_is_not() {
    let resource = "/.well-known/oauth-protected-resource/mcp";
    let issuer = "/.well-known/oauth-authorization-server";
    check(resource, "resource", json!("https://evil.example.com/mcp"), "another server").await;
    check(resource, "authorization_servers", json!([]), "names no authorization server").await;
    check(resource, "authorization_servers", json!(["http://evil.example.com"]), "not encrypted").await;
    check(resource, "authorization_servers", json!(["file:///etc/passwd"]), "not an address").await;
    check(issuer, "issuer", json!("https://attacker.example.com"), "another authorization server").await;
    check(issuer, "code_challenge_methods_supported", json!(["plain"]), "PKCE").await;
    check(issuer, "registration_endpoint", Value::Null, "--client-id").await;
    check(issuer, "token_endpoint", json!("http://evil.example.com/t"), "not encrypted").await;
    check(issuer, "authorization_endpoint", json!("javascript:alert(1)"), "not an address").await;
    check(issuer, "authorization_response_iss_parameter_supported", json!(true), "promised").await;
    check("/register", "client_id", json!(7), "makes no sense").await;

    async fn check(page: &str, field: &str, value: Value, expected: &str) {
        let world = World::start().await;
        world.page(page, |page| page[field] = value);
        let oauth = world.oauth().with_browser(Arc::new(Yes::default()));
        let refused = challenged(&oauth, None, 401, "Bearer").await.unwrap_err();
        assert!(refused.contains(expected), "{page} {field}: {refused}");
        assert!(!world.asked().iter().any(|line| line.contains("/token")), "{page} {field}");
    }
}

#[tokio::test]
async fn a_known_client_proves_itself_and_goes_to_its_own_issuer_only() {
    let world = World::start().await;
    let registered = |issuer: Option<&str>| Identity {
        registered: Some(Registered { id: "me".into(), secret: Some("s".into()), issuer: issuer.map(str::to_owned) }),
        ..Identity::default()
    };
    for (identity, expected) in [
        (registered(None), Ok(true)),
        (registered(Some(&world.base)), Ok(true)),
        (registered(Some("https://other")), Err(())),
    ] {
        world.asked();
        let oauth = world.oauth_with(identity, Arc::new(InMemory::default())).with_browser(Arc::new(Yes::default()));
        assert_eq!(challenged(&oauth, None, 401, "Bearer").await.map_err(drop), expected);
        let asked = world.asked();
        assert_eq!(asked.iter().any(|line| line.ends_with("Basic bWU6cw==")), expected.is_ok(), "{asked:?}");
        assert!(!asked.iter().any(|line| line.contains("/register")), "{asked:?}");
    }
}

#[tokio::test]
async fn a_server_of_the_first_specification_is_its_own_issuer() {
    let (world, person) = (World::start().await, Arc::new(Yes::default()));
    world.pages.lock().retain(|path, _| path == "/register");
    let oauth = world.oauth().with_browser(person.clone());
    assert_eq!(challenged(&oauth, None, 401, "Bearer").await, Ok(true));
    assert_eq!(oauth.bearer().await.as_deref(), Some("token-1"));
    assert_eq!(person.visited.lock()[0].path(), "/authorize");
}

#[tokio::test]
async fn tokens_are_shown_nowhere() {
    let world = World::start().await;
    let grant = grant(&world, "hunter2", Some("hunter2"), None);
    let store = Arc::new(InMemory::default());
    store.save(&grant).unwrap();
    let oauth = world.oauth_with(Identity::default(), store);
    oauth.bearer().await;
    assert!(!format!("{grant:?} {oauth:?}").contains("hunter2"));
}

/// A disk that is full.
#[derive(Debug)]
struct Full;

impl TokenStore for Full {
    fn load(&self) -> io::Result<Option<Grant>> {
        Ok(None)
    }

    fn save(&self, _: &Grant) -> io::Result<()> {
        Err(io::Error::from(io::ErrorKind::StorageFull))
    }
}

#[tokio::test]
async fn a_login_that_cannot_be_kept_is_told() {
    let world = World::start().await;
    let oauth = world.oauth_with(Identity::default(), Arc::new(Full)).with_browser(Arc::new(Yes::default()));
    assert!(matches!(oauth.login(None).await, Err(OAuthError::Store(_))));
}

fn grant(world: &World, token: &str, refresh: Option<&str>, renew_ms: Option<i64>) -> Grant {
    grant_at(&world.base, token, refresh, renew_ms)
}

fn grant_at(base: &str, token: &str, refresh: Option<&str>, renew_ms: Option<i64>) -> Grant {
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
