//! Against pages in a browser that is on the right machine: `Host` and `Origin` must be ours, on every route.

use serde_json::json;

use crate::support::{Ask, Hub};

const ROUTES: &[(&str, &str)] = &[
    ("POST", "/mcp"),
    ("GET", "/mcp"),
    ("DELETE", "/mcp"),
    ("GET", "/sse"),
    ("POST", "/messages?sessionId=x"),
    ("GET", "/health"),
    ("GET", "/.well-known/oauth-protected-resource"),
    ("GET", "/other"),
];

#[tokio::test]
async fn a_strange_host_or_origin_is_forbidden_on_every_route() {
    let hub = Hub::start().await;
    for (method, path) in ROUTES {
        let ask = Ask::new(method, path).key(&hub.key);
        for host in ["evil.example", "evil.example:8765", "localhost.evil.example", "127.0.0.1.evil.example", ""] {
            assert_eq!(hub.ask(&ask.clone().header("Host", host)).await.status(), 403, "{method} {path} {host}");
        }
        for origin in ["https://evil.example", "null", "http://localhost.evil.example", "file://localhost"] {
            assert_eq!(hub.ask(&ask.clone().header("Origin", origin)).await.status(), 403, "{method} {path} {origin}");
        }
    }
    // The door is still open to everyone else.
    assert!(!hub.modern(&hub.key).tools().await.is_empty());
}

#[tokio::test]
async fn loopback_is_welcome_under_all_its_names() {
    let hub = Hub::start().await;
    let client = hub.modern(&hub.key);
    let ask = client.ask(&client.message("tools/list", json!({})));
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8765"] {
        assert_eq!(client.exchange(&ask.clone().header("Host", host)).await.status(), 200, "{host}");
    }
    for origin in ["http://localhost:6274", "http://127.0.0.1", "https://localhost"] {
        assert_eq!(client.exchange(&ask.clone().header("Origin", origin)).await.status(), 200, "{origin}");
    }
}

#[tokio::test]
async fn the_operator_can_add_hosts_and_origins() {
    let hub = Hub::start()
        .yaml(
            "server: { public_url: 'https://hub.example/nexus', allowed_hosts: [nas.lan], \
             allowed_origins: ['https://panel.lan'] }",
        )
        .await;
    let client = hub.modern(&hub.key);
    let ask = client.ask(&client.message("tools/list", json!({})));
    for host in ["hub.example", "nas.lan", "nas.lan:8765", "localhost"] {
        assert_eq!(client.exchange(&ask.clone().header("Host", host)).await.status(), 200, "{host}");
    }
    for origin in ["https://hub.example", "https://panel.lan"] {
        assert_eq!(client.exchange(&ask.clone().header("Origin", origin)).await.status(), 200, "{origin}");
    }
    assert_eq!(client.exchange(&ask.clone().header("Host", "other.lan")).await.status(), 403);
    assert_eq!(client.exchange(&ask.header("Origin", "http://hub.example")).await.status(), 403);
}
