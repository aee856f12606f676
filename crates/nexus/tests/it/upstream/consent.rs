//! Who may use a server, who is asked, and what they read.

use serde_json::{Value, json};

use crate::support::{Hub, decided, hostile, secret, test_server, text_of};

const DECISION: &str = "/requestedSchema/properties/decision/enum";

fn why(result: &Value) -> &str {
    result["structuredContent"]["error"]["why"].as_str().unwrap_or_default()
}

async fn hub() -> Hub {
    let keys = Hub::start().robot().key("boxed", "level: sandboxed").key("worker", "level: worker");
    let hub = keys.upstreams(&json!({ "t": test_server(), "h": hostile("names") })).await;
    hub.upstream_is("t", "ready").await;
    hub.upstream_is("h", "ready").await;
    hub
}

fn add() -> Value {
    json!({ "a": 2, "b": 3 })
}

#[tokio::test]
async fn sandboxed_keys_never_reach_a_server_trusted_are_asked_and_yolo_is_not() {
    let hub = hub().await;
    for name in ["boxed", "worker"] {
        for client in hub.both_asked(&secret(name)).await {
            let (result, asked) = client.call_answering("mcp_t_add", add(), &decided("session")).await;
            assert_eq!((&result["isError"], asked.len()), (&json!(true), 0), "{name}: {result}");
            let (result, asked) =
                client.call_answering("connect_upstream", json!({ "name": "t" }), &decided("session")).await;
            assert_eq!((&result["isError"], asked.len()), (&json!(true), 0), "{name}: {result}");
        }
    }
    for client in hub.both_asked(&secret("robot")).await {
        let (result, asked) = client.call_answering("mcp_t_add", add(), &decided("no")).await;
        assert_eq!((text_of(&result).as_str(), asked.len()), ("5", 0), "{result}");
    }
    for client in hub.both_asked(&hub.key).await {
        let (result, asked) = client.call_answering("mcp_t_add", add(), &decided("session")).await;
        assert_eq!((text_of(&result).as_str(), asked.len()), ("5", 1), "{result}");
    }
}

#[tokio::test]
async fn the_first_use_asks_about_the_server_and_all_its_tools_are_free_afterwards() {
    let hub = hub().await;
    for client in hub.both_asked(&hub.key).await {
        let (result, asked) = client.call_answering("mcp_t_add", add(), &decided("session")).await;
        assert_eq!(text_of(&result), "5", "{result}");
        assert_eq!(asked[0].pointer(DECISION), Some(&json!(["session", "each", "no"])));
        let message = asked[0]["message"].as_str().unwrap();
        // Server, where it comes from, command, tools.
        for part in ["t", "mcp.json", "test-server", "echo", "get_time", "add"] {
            assert!(message.contains(part), "no {part} in {message}");
        }
        let (_, asked) = client.call_answering("mcp_t_echo", json!({ "message": "x" }), &decided("no")).await;
        assert!(asked.is_empty(), "{asked:?}");
        let (_, asked) = client.call_answering("mcp_h_echo", json!({ "message": "x" }), &decided("no")).await;
        assert_eq!(asked.len(), 1, "another server is another question");
    }
}

#[tokio::test]
async fn each_call_can_be_asked_about_until_somebody_says_always() {
    let hub = hub().await;
    for client in hub.both_asked(&hub.key).await {
        let (result, asked) = client.call_answering("connect_upstream", json!({ "name": "t" }), &decided("each")).await;
        assert_eq!((&result["isError"], asked.len()), (&json!(false), 1), "{result}");
        for _ in 0..2 {
            let (result, asked) = client.call_answering("mcp_t_add", add(), &decided("once")).await;
            assert_eq!((text_of(&result).as_str(), asked.len()), ("5", 1), "{result}");
            assert_eq!(asked[0].pointer(DECISION), Some(&json!(["once", "session", "no"])));
            assert!(asked[0]["message"].as_str().unwrap().contains("mcp_t_add"), "{asked:?}");
        }
        let (result, _) = client.call_answering("mcp_t_add", add(), &decided("no")).await;
        assert_eq!(why(&result), "denied", "{result}");
        let (result, asked) = client.call_answering("mcp_t_add", add(), &decided("session")).await;
        assert_eq!((text_of(&result).as_str(), asked.len()), ("5", 1));
        let (result, asked) = client.call_answering("mcp_t_echo", json!({ "message": "x" }), &decided("no")).await;
        assert_eq!((text_of(&result).as_str(), asked.len()), ("x", 0));
    }
}

#[tokio::test]
async fn a_no_to_a_server_stands_for_the_session_and_nobody_is_asked_again() {
    let hub = hub().await;
    let client = hub.legacy_asked(&hub.key).await;
    let (result, asked) = client.call_answering("mcp_t_add", add(), &decided("no")).await;
    assert_eq!((&result["isError"], asked.len()), (&json!(true), 1), "{result}");
    let (result, asked) = client.call_answering("mcp_t_add", add(), &decided("session")).await;
    assert_eq!((&result["isError"], asked.len()), (&json!(true), 0), "{result}");
    // Another session may decide otherwise.
    let other = hub.legacy_asked(&hub.key).await;
    let (result, _) = other.call_answering("mcp_t_add", add(), &decided("session")).await;
    assert_eq!(text_of(&result), "5");
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_gets_the_pending_reply_and_nothing_is_sent() {
    let setup = Hub::start();
    let notes = setup.notes("notes");
    let hub = setup.upstreams(&json!({ "h": hostile(&format!("good {}", notes.named("state"))) })).await;
    hub.upstream_is("h", "ready").await;
    for client in hub.both(&hub.key).await {
        let result = client.call("mcp_h_note", json!({ "line": "x" })).await;
        assert_eq!(result["structuredContent"]["status"], "approval_required", "{result}");
    }
    assert_eq!(notes.count("note"), 0);
    let client = hub.legacy(&hub.key).await;
    let pending = client.call("mcp_h_note", json!({ "line": "x" })).await;
    let code = pending["structuredContent"]["code"].as_str().unwrap().to_owned();
    hub.nexus(&["approve", &code]).await.ok();
    assert_eq!(text_of(&client.call("mcp_h_note", json!({ "line": "x" })).await), "1");
    assert_eq!(text_of(&client.call("mcp_h_echo", json!({ "message": "free" })).await), "free");
}

#[tokio::test]
async fn a_servers_words_cannot_forge_the_question() {
    let hub = hub().await;
    for client in hub.both_asked(&hub.key).await {
        let hostile_words = "fine»\n\nAllow this? nothing «\u{202e}\u{1b}[2J";
        let (_, asked) = client.call_answering("mcp_h_echo", json!({ "message": hostile_words }), &decided("no")).await;
        let message = asked[0]["message"].as_str().unwrap();
        assert_eq!(message.lines().count(), 1, "{message:?}");
        assert!(message.len() < 4000, "{}", message.len());
        let forged = |c: char| {
            c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        assert!(!message.contains(forged), "{message:?}");
        assert_eq!(message.matches('«').count(), message.matches('»').count(), "{message}");
    }
}

#[tokio::test]
async fn a_private_connection_is_seen_and_used_by_its_own_key_alone() {
    let hub = Hub::start().key("mine", "level: yolo").key("yours", "level: yolo");
    let hub =
        hub.upstreams(&json!({ "t": { "command": [env!("CARGO_BIN_EXE_nexus"), "test-server"], "lazy": true } })).await;
    let (mine, yours) = (hub.modern(&secret("mine")), hub.modern(&secret("yours")));
    // It is everybody's until somebody takes it back.
    mine.does("disconnect_upstream", json!({ "name": "t" })).await;
    assert!(!mine.tools().await.contains(&"mcp_t_add".to_owned()));
    mine.does("connect_upstream", json!({ "name": "t", "visibility": "private" })).await;
    assert_eq!(text_of(&mine.call("mcp_t_add", add()).await), "5");
    assert!(!yours.tools().await.contains(&"mcp_t_add".to_owned()));
    let answer = yours.send("tools/call", json!({ "name": "mcp_t_add", "arguments": add() })).await;
    assert_eq!(answer.code(), -32602);
    mine.does("disconnect_upstream", json!({ "name": "t" })).await;
    assert!(!mine.tools().await.contains(&"mcp_t_add".to_owned()));
}

#[tokio::test]
async fn no_request_of_a_client_can_name_what_is_started() {
    let hub = hub().await;
    let client = hub.robot();
    for name in ["no-such-server", "../../bin/sh", "sh -c id", ""] {
        let result =
            client.send("tools/call", json!({ "name": "connect_upstream", "arguments": { "name": name } })).await;
        assert_eq!(result.result()["isError"], true, "{name}: {result:?}");
    }
    let extra = json!({ "name": "t", "command": ["sh"] });
    assert_eq!(client.call("connect_upstream", extra).await["isError"], true);
}
