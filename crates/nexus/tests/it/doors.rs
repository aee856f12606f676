//! Three doors, one hub: whatever the way in, the tools are the same.

use insta::assert_json_snapshot;
use serde_json::{Value, json};

use crate::support::{Ask, Hub, Stdio, write};

/// What a door answers to the same two requests.
async fn through_all_doors(hub: &Hub) -> Vec<(&'static str, Value, Value)> {
    // Not the hub's own: a door on stdio puts its socket into the data folder, and that shows.
    let shelf = hub.path("shelf");
    let _ = std::fs::create_dir(&shelf);
    write(&shelf.join("book"), "once upon a time");
    let call = json!({ "name": "list_directory", "arguments": { "path": shelf } });
    let mut seen = Vec::new();
    for client in hub.both(&hub.key).await {
        let era = if client.session.is_some() { "http, legacy" } else { "http, modern" };
        let listed = client.send("tools/list", json!({})).await;
        let called = client.send("tools/call", call.clone()).await;
        seen.push((era, listed.result()["tools"].clone(), called.result().clone()));
    }
    let mut sse = hub.sse(&hub.key).await;
    let (listed, called) = (sse.request("tools/list", json!({})).await, sse.request("tools/call", call.clone()).await);
    seen.push(("sse", listed["result"]["tools"].clone(), called["result"].clone()));
    let program = hub.program(&["stdio"]);
    for mut door in [Stdio::legacy(&program).await, Stdio::modern(&program)] {
        let (listed, called) =
            (door.request("tools/list", json!({})).await, door.request("tools/call", call.clone()).await);
        seen.push(("stdio", listed["result"]["tools"].clone(), called["result"].clone()));
        assert_eq!(door.end().await.1, Some(0));
    }
    seen
}

#[tokio::test]
async fn every_door_lists_the_same_tools_and_answers_the_same_call_alike() {
    let hub = Hub::start().await;
    let seen = through_all_doors(&hub).await;
    let (_, tools, called) = &seen[0];
    assert!(tools.as_array().unwrap().len() >= 7, "{tools}");
    for (door, listed, answered) in &seen {
        assert_eq!(listed, tools, "{door}");
        assert_eq!(answered["structuredContent"], called["structuredContent"], "{door}: {answered}");
        assert_eq!(answered["content"], called["content"], "{door}");
        assert_eq!(answered["isError"], false, "{door}");
    }
}

#[tokio::test]
async fn each_door_and_era_is_named_in_the_record() {
    let hub = Hub::start().await;
    through_all_doors(&hub).await;
    let calls = |rows: &[crate::support::AuditRow]| {
        let mut ways: Vec<String> = rows
            .iter()
            .filter(|row| row.is("call list_directory allowed ok"))
            .map(|row| {
                let part = |part: &Option<String>| part.clone().unwrap_or_default();
                format!("{} {} {}", part(&row.transport), part(&row.era), part(&row.principal))
            })
            .collect();
        ways.sort();
        ways
    };
    let rows = hub.audit_reaches(|rows| calls(rows).len() == 5).await;
    let expected = [
        "http legacy default",
        "http modern default",
        "sse legacy default",
        "stdio legacy local",
        "stdio modern local",
    ];
    assert_eq!(calls(&rows), expected);
}

#[tokio::test]
async fn a_tool_is_listed_with_title_annotations_and_both_schemas() {
    let hub = Hub::start().await;
    let listed = hub.modern(&hub.key).send("tools/list", json!({})).await;
    let tools = listed.result()["tools"].as_array().unwrap();
    let named = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap();
    for tool in tools {
        let (name, output) = (&tool["name"], &tool["outputSchema"]);
        assert!(tool["title"].is_string() && tool["description"].is_string(), "{name}");
        assert_eq!(tool["inputSchema"]["type"], "object", "{name}");
        assert_eq!(output["type"], "object", "{name}");
        assert_eq!(tool["annotations"].as_object().unwrap().len(), 5, "{name}");
    }
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.is_sorted(), "{names:?}");
    assert_json_snapshot!(named("read_file")["annotations"], @r#"
    {
      "title": "Read file",
      "readOnlyHint": true,
      "destructiveHint": false,
      "idempotentHint": true,
      "openWorldHint": false
    }
    "#);
    assert_json_snapshot!(named("run_command")["annotations"], @r#"
    {
      "title": "Run command",
      "readOnlyHint": false,
      "destructiveHint": true,
      "idempotentHint": false,
      "openWorldHint": true
    }
    "#);
}

#[tokio::test]
async fn the_structured_content_of_a_reply_is_its_text() {
    let hub = Hub::start().await;
    for client in hub.both(&hub.key).await {
        for (tool, arguments) in
            [("get_session_info", json!({})), ("get_env", json!({})), ("list_directory", json!({ "path": "/" }))]
        {
            let result = client.call(tool, arguments).await;
            let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
            assert_eq!(text, result["structuredContent"], "{tool}");
        }
    }
}

#[tokio::test]
async fn health_is_told_to_anyone_and_holds_no_secrets() {
    let hub = Hub::start().await;
    hub.legacy(&hub.key).await;
    let health = hub.ask(&Ask::get("/health")).await;
    assert_eq!(health.status(), 200);
    let told = health.json();
    assert_eq!(told["ok"], true);
    assert_eq!(told["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(told["sessions"], 1);
    assert_eq!(told["computers"], 0);
    assert_eq!(told["upstreams"], json!({}));
    assert!(told["uptime_s"].is_u64() && told["audit"]["rows"].is_u64(), "{told}");
    assert!(!health.body.contains(&hub.key) && !health.body.contains(hub.data.to_str().unwrap()));
}

#[tokio::test]
async fn well_known_addresses_are_a_cheap_404_for_anyone() {
    let hub = Hub::start().await;
    for path in ["oauth-protected-resource", "oauth-protected-resource/mcp", "oauth-authorization-server", "x/y/z"] {
        let response = hub.ask(&Ask::get(&format!("/.well-known/{path}"))).await;
        assert_eq!((response.status(), response.body.as_str()), (404, ""), "{path}");
    }
    assert!(hub.audit().await.iter().all(|row| row.event != "key_refused"));
}

#[tokio::test]
async fn one_connection_carries_many_requests() {
    let hub = Hub::start().await;
    let client = hub.modern(&hub.key);
    let mut wire = hub.connect().await;
    for _ in 0..20 {
        let response = wire.ask(&client.ask(&client.message("tools/list", json!({})))).await;
        assert_eq!(response.status(), 200);
    }
    assert_eq!(wire.ask(&Ask::get("/health")).await.status(), 200);
}

#[tokio::test]
async fn many_callers_at_once_are_all_answered() {
    let hub = Hub::start().await;
    let client = hub.legacy(&hub.key).await;
    let calls = (0..40).map(|_| client.call("get_session_info", json!({})));
    let replies = futures_util::future::join_all(calls).await;
    assert!(replies.iter().all(|reply| reply["isError"] == false));
}
