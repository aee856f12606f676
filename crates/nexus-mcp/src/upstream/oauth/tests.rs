//! Logins against an authorization server that is scripted in memory, over real HTTP.

mod world;

use std::io;

use nexus_core::audit::Nowhere;
use nexus_core::clock;
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::world::{World, Yes, challenged, grant, grant_at};
use super::*;
use crate::upstream::config::HttpEndpoint;

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
