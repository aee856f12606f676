//! Who may come in: keys from the environment, from a file, from nexus.yaml, and the one a hub makes itself.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::support::{Ask, Client, Hub, secret, write};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn a_missing_and_a_wrong_key_look_the_same_and_are_recorded() {
    let hub = Hub::start().await;
    let hello = Client::hello("2025-11-25");
    let basic = hello.clone().header("Authorization", "Basic dXNlcjpwYXNz");
    let bare = hello.clone().header("Authorization", &hub.key);
    for refused in [hello.clone(), hello.clone().key(&secret("stranger")), basic, bare, hello.key("")] {
        let response = hub.ask(&refused).await;
        assert_eq!((response.status(), response.body.as_str()), (401, ""), "{refused:?}");
        assert!(response.header("www-authenticate").unwrap().starts_with("Bearer"));
    }
    let refusals = |rows: &[crate::support::AuditRow]| rows.iter().filter(|row| row.event == "key_refused").count();
    let rows = hub.audit_reaches(|rows| refusals(rows) == 5).await;
    let details: Vec<&str> = rows.iter().filter_map(|row| row.detail.as_deref()).collect();
    assert!(details.contains(&"no key from 127.0.0.1"), "{details:?}");
    assert!(details.contains(&"a wrong key from 127.0.0.1"), "{details:?}");
    let all = format!("{rows:?}{}", hub.said());
    assert!(!all.contains(&secret("stranger")) && !all.contains(&hub.key), "{all}");
}

#[tokio::test]
async fn every_route_but_the_open_ones_wants_a_key() {
    let hub = Hub::start().await;
    for (method, path) in
        [("GET", "/mcp"), ("DELETE", "/mcp"), ("GET", "/sse"), ("POST", "/messages?sessionId=x"), ("GET", "/other")]
    {
        assert_eq!(hub.ask(&Ask::new(method, path)).await.status(), 401, "{method} {path}");
    }
    assert_eq!(hub.ask(&Ask::get("/other").key(&hub.key)).await.status(), 404);
    // Never in the address: it would stand in every log on the way.
    assert_eq!(hub.ask(&Ask::get(&format!("/sse?key={0}&access_token={0}", hub.key))).await.status(), 401);
}

#[tokio::test]
async fn guessing_gets_slower_and_a_valid_key_from_the_same_address_does_not() {
    let hub = Hub::start().await;
    let wrong = Client::hello("2025-11-25").key(&secret("stranger"));
    for _ in 0..3 {
        hub.ask(&wrong).await;
    }
    // The next ones wait; the last of them longest. The right key overtakes it.
    let mut guesses = Vec::new();
    for _ in 0..5 {
        let mut wire = hub.connect().await;
        wire.send(&wrong).await;
        guesses.push(wire);
    }
    let refusals = |rows: &[crate::support::AuditRow]| rows.iter().filter(|row| row.event == "key_refused").count();
    hub.audit_reaches(|rows| refusals(rows) == 8).await;
    let modern = hub.modern(&hub.key);
    let mut slowest = guesses.pop().unwrap();
    tokio::select! {
        biased;
        _ = slowest.response() => panic!("the guess was answered first"),
        () = async { for _ in 0..3 { modern.tools().await; } } => {}
    }
}

#[tokio::test]
async fn a_key_may_come_from_a_file() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("api-key");
    write(&file, &format!("{}\n", secret("filed")));
    let hub = Hub::start().keyless().env("MCP_API_KEY_FILE", file.to_str().unwrap()).await;
    assert!(!hub.modern(&secret("filed")).tools().await.is_empty());
    assert!(!hub.data.join("key").exists());
    let me = hub.modern(&secret("filed")).does("get_session_info", json!({})).await;
    assert_eq!((&me["principal"], &me["level"]), (&json!("default"), &json!("trusted")));
}

#[tokio::test]
async fn a_short_key_is_refused_at_start() {
    let ran = Hub::start().env("MCP_API_KEY", "0123456789012345678901234567890").refused().await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("MCP_API_KEY is 31 characters long; a key has at least 32"), "{ran:?}");
    assert!(!ran.stderr.contains("01234567890"), "{ran:?}");
}

#[tokio::test]
async fn a_listener_beyond_loopback_without_a_key_is_refused_at_start() {
    let ran = Hub::start().keyless().env("MCP_HOST", "0.0.0.0").refused().await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("the MCP listener on 0.0.0.0 would be reachable without a key"), "{ran:?}");
    let hub = Hub::start().env("MCP_HOST", "0.0.0.0").await;
    assert!(!hub.modern(&hub.key).tools().await.is_empty());
    // Only the fixtures let anyone in, so they never leave this machine.
    let ran = Hub::start().env("MCP_HOST", "0.0.0.0").conformance().refused().await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
}

#[tokio::test]
async fn a_hub_without_a_key_makes_one_shows_it_once_and_keeps_it_private() {
    let mut hub = Hub::start().keyless().await;
    let key = hub.made_key();
    assert!(key.len() >= 32);
    assert_eq!(mode(&hub.data), 0o700);
    assert_eq!(mode(&hub.data.join("key")), 0o600);
    for private in ["nexus.db", "hub.lock", "control.sock"] {
        assert_eq!(mode(&hub.data.join(private)), 0o600, "{private}");
    }
    let said = hub.said();
    let mcp = format!("http://{}/mcp", hub.address);
    assert!(
        said.contains(&format!("claude mcp add --transport http nexus {mcp} --header \"Authorization: Bearer {key}\""))
    );
    for client in ["Claude Desktop", "opencode", "Codex"] {
        assert!(said.contains(client), "{client}");
    }
    assert!(!hub.modern(&key).tools().await.is_empty());
    assert_eq!(hub.stop().await.code(), Some(0));

    let again = Hub::start().keyless().data(&hub.data).await;
    assert!(!again.said().contains(&key), "{}", again.said());
    assert_eq!(again.made_key(), key);
    assert!(!again.modern(&key).tools().await.is_empty());
}

#[tokio::test]
async fn an_open_data_folder_is_shut_to_others() {
    let folder = tempfile::TempDir::new().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let _hub = Hub::start().data(&data).await;
    assert_eq!(mode(&data), 0o700);
}

#[tokio::test]
async fn keys_in_the_file_have_the_level_it_says() {
    let levels = ["sandboxed", "trusted", "yolo"];
    let setup = levels.iter().fold(Hub::start(), |setup, level| setup.key(level, &format!("level: {level}")));
    let hub = setup.key("plain", "").await;
    for level in levels {
        let me = hub.modern(&secret(level)).does("get_session_info", json!({})).await;
        assert_eq!((&me["principal"], &me["level"]), (&json!(level), &json!(level)));
    }
    let me = hub.modern(&secret("plain")).does("get_session_info", json!({})).await;
    assert_eq!(me["level"], "trusted");
}

#[tokio::test]
async fn a_tool_that_a_key_may_not_use_is_unlisted_and_unknown() {
    let hub =
        Hub::start().key("reader", "allow: ['read_*', 'get_*'], deny: [get_env]").key("nobody", "allow: []").await;
    for reader in hub.both(&secret("reader")).await {
        let allowed = [
            "get_audit_log",
            "get_redstone",
            "get_session_info",
            "get_task",
            "read_computer_file",
            "read_file",
            "read_output",
            "read_upstream_log",
        ];
        assert_eq!(reader.tools().await, allowed);
        for hidden in ["get_env", "run_command", "list_directory"] {
            let refused = reader.send("tools/call", json!({ "name": hidden, "arguments": {} })).await;
            let unknown = reader.send("tools/call", json!({ "name": "no_such_tool", "arguments": {} })).await;
            assert_eq!(refused.code(), -32602);
            assert_eq!(refused.status(), unknown.status());
            let message = |answer: &crate::support::Answer| answer.message()["error"]["message"].to_string();
            assert_eq!(message(&refused).replace(hidden, "X"), message(&unknown).replace("no_such_tool", "X"));
        }
    }
    assert!(hub.modern(&secret("nobody")).tools().await.is_empty());
    hub.audit_has("call run_command unknown_tool").await;
}

#[tokio::test]
async fn an_expired_key_is_no_key() {
    let hub = Hub::start().key("old", "expires: 2020-01-01").key("new", "expires: 2090-01-01").await;
    assert_eq!(hub.ask(&Client::hello("2025-11-25").key(&secret("old"))).await.status(), 401);
    assert!(!hub.modern(&secret("new")).tools().await.is_empty());
}

#[tokio::test]
async fn the_address_behind_a_proxy_is_believed_only_from_a_trusted_one() {
    let refused_from = async |hub: &Hub| {
        let ask = Client::hello("2025-11-25").header("X-Forwarded-For", "6.6.6.6, 203.0.113.9");
        assert_eq!(hub.ask(&ask).await.status(), 401);
        let rows = hub.audit_reaches(|rows| rows.iter().any(|row| row.event == "key_refused")).await;
        rows.into_iter().find(|row| row.event == "key_refused").unwrap().detail.unwrap()
    };
    let plain = Hub::start().await;
    assert_eq!(refused_from(&plain).await, "no key from 127.0.0.1");
    let behind = Hub::start().yaml("server: { trusted_proxies: [127.0.0.1] }").await;
    assert_eq!(refused_from(&behind).await, "no key from 203.0.113.9");
}
