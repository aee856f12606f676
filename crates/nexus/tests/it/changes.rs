//! When the tools change, whoever listens is told.

use serde_json::{Value, json};

use crate::support::{Ask, Client, Hub, Stdio};

async fn change(client: &Client) {
    client.call("test_trigger_tool_change", json!({})).await;
}

async fn listen(client: &Client, params: Value) -> (Value, crate::support::Wire) {
    let message = client.message("subscriptions/listen", params);
    let mut wire = client.start(&message).await;
    assert!(wire.head().await.is_stream());
    (message["id"].clone(), wire)
}

#[tokio::test]
async fn the_old_era_is_told_on_the_get_stream_of_every_session() {
    let hub = Hub::start().conformance().await;
    let (one, two) = (hub.legacy(&hub.key).await, hub.legacy(&hub.key).await);
    let get =
        |client: &Client| Ask::get("/mcp").key(&hub.key).header("Mcp-Session-Id", client.session.as_ref().unwrap());
    let (_, mut first) = hub.open(&get(&one)).await;
    let (head, mut second) = hub.open(&get(&two)).await;
    assert!(head.is_stream());
    assert!(!one.tools().await.contains(&"test_changed".to_owned()));
    change(&one).await;
    for stream in [&mut first, &mut second] {
        let told = stream.next().await;
        assert_eq!(told["method"], "notifications/tools/list_changed");
        assert!(told.get("id").is_none());
    }
    assert!(two.tools().await.contains(&"test_changed".to_owned()));
    change(&two).await;
    assert_eq!(first.next().await["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn http_sse_is_told_on_its_stream() {
    let hub = Hub::start().conformance().await;
    let mut sse = hub.sse(&hub.key).await;
    change(&hub.modern(&hub.key)).await;
    assert_eq!(sse.stream.next().await["method"], "notifications/tools/list_changed");
    sse.request("tools/call", json!({ "name": "test_trigger_tool_change", "arguments": {} })).await;
    // Before its answer or after it.
    if sse.heard.is_empty() {
        sse.heard.push(sse.stream.next().await);
    }
    assert_eq!(sse.heard[0]["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn the_new_era_subscribes_is_acknowledged_first_and_told_with_the_subscriptions_id() {
    let hub = Hub::start().conformance().await;
    let client = hub.modern(&hub.key);
    let (id, mut stream) = listen(&client, json!({ "notifications": { "toolsListChanged": true } })).await;
    let mark = |message: &Value| message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone();
    let acknowledged = stream.next().await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["notifications"], json!({ "toolsListChanged": true }));
    assert_eq!(mark(&acknowledged), id);
    for _ in 0..2 {
        change(&client).await;
        let told = stream.next().await;
        assert_eq!(told["method"], "notifications/tools/list_changed");
        assert_eq!(mark(&told), id);
    }
}

#[tokio::test]
async fn a_subscription_tells_only_what_it_was_asked_for() {
    let hub = Hub::start().conformance().await;
    let client = hub.modern(&hub.key);
    let (_, mut prompts) = listen(&client, json!({ "notifications": { "promptsListChanged": true } })).await;
    assert_eq!(prompts.next().await["params"]["notifications"], json!({ "promptsListChanged": true }));
    let wanted = json!({ "notifications": { "toolsListChanged": true, "resourceSubscriptions": ["file:///x"] } });
    let (_, mut tools) = listen(&client, wanted).await;
    assert_eq!(tools.next().await["params"]["notifications"], json!({ "toolsListChanged": true }));
    change(&client).await;
    assert_eq!(tools.next().await["method"], "notifications/tools/list_changed");
    client.call("test_trigger_prompt_change", json!({})).await;
    assert_eq!(prompts.next().await["method"], "notifications/prompts/list_changed");
    let refused = client.send("subscriptions/listen", json!({})).await;
    assert_eq!((refused.status(), refused.code()), (400, -32602));
}

#[tokio::test]
async fn a_subscription_is_acknowledged_with_what_the_hub_knows_of() {
    let hub = Hub::start().await;
    let client = hub.modern(&hub.key);
    let wanted =
        json!({ "notifications": { "toolsListChanged": true, "promptsListChanged": true, "novelties": true } });
    let (_, mut stream) = listen(&client, wanted).await;
    let accepted = stream.next().await["params"]["notifications"].clone();
    assert_eq!(accepted, json!({ "toolsListChanged": true, "promptsListChanged": true }));
}

#[tokio::test]
async fn a_subscription_on_the_pipe_is_acknowledged_and_does_not_hold_up_the_end() {
    let hub = Hub::start().await;
    let mut door = Stdio::modern(&hub.program(&["stdio"]));
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "_meta": meta, "notifications": { "toolsListChanged": true } });
    door.send(&json!({ "jsonrpc": "2.0", "id": "sub", "method": "subscriptions/listen", "params": params })).await;
    let acknowledged = door.next().await.unwrap();
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "sub");
    assert!(door.request("tools/list", json!({})).await["result"].is_object());
    let (rest, code) = door.end().await;
    assert_eq!(code, Some(0));
    assert!(rest.iter().all(|message| message["id"] == "sub"), "{rest:?}");
}
