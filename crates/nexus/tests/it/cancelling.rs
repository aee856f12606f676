//! Progress of a running call, and the ways to stop one.

use serde_json::{Value, json};

use crate::support::{Ask, Client, Hub, Wire, is_alive, rpc, secret, until};

fn sleep(token: &str) -> Value {
    json!({ "name": "test_sleep", "arguments": { "seconds": 300 }, "_meta": { "progressToken": token } })
}

/// A call that runs for long, and has said so.
async fn sleeping(client: &Client, message: &Value) -> Wire {
    let mut wire = client.start(message).await;
    assert!(wire.head().await.is_stream());
    assert_eq!(wire.next().await["method"], "notifications/progress");
    wire
}

fn cancelled(id: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id, "reason": "enough" } })
}

#[tokio::test]
async fn progress_comes_on_the_calls_own_stream_with_its_token_and_the_answer_last() {
    let hub = Hub::start().conformance().await;
    for client in hub.both(&hub.key).await {
        for token in [json!("tok-\u{fc}"), json!(7)] {
            let params =
                json!({ "name": "test_tool_with_progress", "arguments": {}, "_meta": { "progressToken": token } });
            let answer = client.send("tools/call", params).await;
            assert!(answer.head.is_stream());
            assert_eq!(answer.head.header("x-accel-buffering"), Some("no"));
            let (last, reports) = answer.messages.split_last().unwrap();
            assert!(last["result"].is_object(), "{last}");
            let done: Vec<f64> = reports.iter().map(|report| report["params"]["progress"].as_f64().unwrap()).collect();
            assert_eq!(done, [0.0, 50.0, 100.0]);
            assert!(reports.iter().all(|report| report["params"]["progressToken"] == token), "{reports:?}");
        }
        // Nobody asked, nothing is said.
        let quiet = client.send("tools/call", json!({ "name": "test_tool_with_progress", "arguments": {} })).await;
        assert_eq!(quiet.messages.len(), 1);
    }
    let mut sse = hub.sse(&hub.key).await;
    let params = json!({ "name": "test_tool_with_progress", "arguments": {}, "_meta": { "progressToken": "t" } });
    sse.request("tools/call", params).await;
    assert_eq!(sse.heard.len(), 3, "{:?}", sse.heard);
}

#[tokio::test]
async fn a_cancelled_call_of_the_old_era_stops_and_gets_no_answer() {
    let hub = Hub::start().conformance().await;
    let client = hub.legacy(&hub.key).await;
    for id in [json!(71), json!("seventy-one")] {
        let mut message = rpc(0, "tools/call", &sleep("t"));
        message["id"] = id.clone();
        let mut wire = sleeping(&client, &message).await;
        assert_eq!(hub.ask(&client.ask(&cancelled(&id))).await.status(), 202);
        while let Some(event) = wire.event().await {
            assert_eq!(event.json()["method"], "notifications/progress", "{event:?}");
        }
        // The id is free again.
        let echo = json!({ "name": "echo", "arguments": { "message": "x" } });
        let mut again = rpc(0, "tools/call", &echo);
        again["id"] = id;
        assert_eq!(client.exchange(&client.ask(&again)).await.result()["isError"], false);
    }
    hub.audit_has("call test_sleep allowed cancelled").await;
}

#[tokio::test]
async fn a_cancelled_call_on_a_stream_stops_and_gets_no_answer() {
    let hub = Hub::start().conformance().await;
    let mut sse = hub.sse(&hub.key).await;
    sse.post(&rpc(71, "tools/call", &sleep("t"))).await;
    assert_eq!(sse.stream.next().await["method"], "notifications/progress");
    sse.post(&cancelled(&json!(71))).await;
    hub.audit_has("call test_sleep allowed cancelled").await;
    assert_eq!(sse.request("ping", json!({})).await["result"], json!({}));
    assert!(sse.heard.iter().all(|heard| heard["method"] == "notifications/progress"), "{:?}", sse.heard);
}

#[tokio::test]
async fn cancelling_what_does_not_run_or_is_anothers_does_nothing() {
    let hub = Hub::start().conformance().await;
    let (mine, other) = (hub.legacy(&hub.key).await, hub.legacy(&hub.key).await);
    let sleep = json!({ "name": "test_sleep", "arguments": { "seconds": 1 }, "_meta": { "progressToken": 1 } });
    let mut wire = sleeping(&mine, &rpc(71, "tools/call", &sleep)).await;
    for id in [json!(71), json!(999), json!(null), json!({})] {
        assert_eq!(hub.ask(&other.ask(&cancelled(&id))).await.status(), 202, "{id}");
    }
    assert_eq!(hub.ask(&mine.ask(&cancelled(&json!("71")))).await.status(), 202);
    let last = loop {
        let message = wire.next().await;
        if message["id"] == 71 {
            break message;
        }
    };
    assert_eq!(last["result"]["isError"], false);
}

#[tokio::test]
async fn hanging_up_cancels_in_the_new_era() {
    let hub = Hub::start().conformance().await;
    let client = hub.modern(&hub.key);
    drop(sleeping(&client, &client.message("tools/call", sleep("t"))).await);
    let row = hub.audit_has("call test_sleep allowed cancelled").await;
    assert_eq!(row.era.as_deref(), Some("modern"));
}

#[tokio::test]
async fn hanging_up_before_the_first_word_cancels_too() {
    let hub = Hub::start().conformance().await;
    let client = hub.modern(&hub.key);
    let quiet = json!({ "name": "test_sleep", "arguments": { "seconds": 300 } });
    let wire = client.start(&client.message("tools/call", quiet)).await;
    // The lease begins with the call.
    hub.audit_reaches(|rows| rows.iter().any(|row| row.event == "session_started")).await;
    drop(wire);
    hub.audit_has("call test_sleep allowed cancelled").await;
}

#[tokio::test]
async fn hanging_up_does_not_cancel_in_the_old_era() {
    let hub = Hub::start().conformance().await;
    let client = hub.legacy(&hub.key).await;
    let sleep = json!({ "name": "test_sleep", "arguments": { "seconds": 1 }, "_meta": { "progressToken": 1 } });
    drop(sleeping(&client, &client.message("tools/call", sleep)).await);
    hub.audit_has("call test_sleep allowed ok").await;
}

/// A batch of 2025-03-26 that is running: the tools change when it begins, and then it waits.
async fn running_batch(hub: &Hub, seconds: u32) -> (Client, Wire) {
    let client = Client::initialized(hub, &hub.key, "2025-03-26").await;
    let get = Ask::get("/mcp").key(&hub.key).header("Mcp-Session-Id", client.session.as_ref().unwrap());
    let (_, mut changes) = hub.open(&get).await;
    let batch = json!([
        rpc(71, "tools/call", &json!({ "name": "test_trigger_tool_change", "arguments": {} })),
        rpc(72, "tools/call", &json!({ "name": "test_sleep", "arguments": { "seconds": seconds } })),
    ]);
    let wire = client.start(&batch).await;
    assert_eq!(changes.next().await["method"], "notifications/tools/list_changed");
    (client, wire)
}

#[tokio::test]
async fn hanging_up_does_not_cancel_a_batch_either() {
    let hub = Hub::start().conformance().await;
    let (_client, wire) = running_batch(&hub, 1).await;
    drop(wire);
    let ended = |row: &crate::support::AuditRow| row.tool.as_deref() == Some("test_sleep");
    let rows = hub.audit_reaches(|rows| rows.iter().any(ended)).await;
    assert_eq!(rows.into_iter().find(ended).unwrap().told(), "call test_sleep allowed ok");
}

#[tokio::test]
async fn a_request_in_a_batch_can_be_cancelled() {
    let hub = Hub::start().conformance().await;
    let (client, _wire) = running_batch(&hub, 5).await;
    assert_eq!(hub.ask(&client.ask(&cancelled(&json!(72)))).await.status(), 202);
    let ended = |row: &crate::support::AuditRow| row.tool.as_deref() == Some("test_sleep");
    let rows = hub.audit_reaches(|rows| rows.iter().any(ended)).await;
    assert_eq!(rows.into_iter().find(ended).unwrap().told(), "call test_sleep allowed cancelled");
}

/// Runs a command that starts another, tells both numbers, and waits for long.
fn endless(hub: &Hub) -> Value {
    let file = hub.path("pids");
    let command = format!("sleep 600 & echo $$ $! > {0}.new; mv {0}.new {0}; wait", file.display());
    json!({ "name": "run_command", "arguments": { "cmd": command, "timeout": 600 }, "_meta": { "progressToken": 1 } })
}

async fn pids(hub: &Hub) -> Vec<u32> {
    let file = hub.path("pids");
    until("the command to start", || file.exists()).await;
    std::fs::read_to_string(&file).unwrap().split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[tokio::test]
async fn a_cancelled_command_is_killed_with_all_it_started() {
    let hub = Hub::start().key("robot", "level: yolo").await;
    for era in ["legacy", "modern"] {
        let client = if era == "legacy" { hub.legacy(&secret("robot")).await } else { hub.modern(&secret("robot")) };
        let message = client.message("tools/call", endless(&hub));
        let wire = client.start(&message).await;
        let pids = pids(&hub).await;
        assert!(pids.iter().all(|pid| is_alive(*pid)), "{pids:?}");
        if era == "legacy" {
            hub.ask(&client.ask(&cancelled(&message["id"]))).await;
        } else {
            drop(wire);
        }
        until("the end of the group", || !pids.iter().any(|pid| is_alive(*pid))).await;
        std::fs::remove_file(hub.path("pids")).unwrap();
    }
    let ended = |rows: &[crate::support::AuditRow]| {
        rows.iter().filter(|row| row.is("call run_command allowed cancelled")).count()
    };
    hub.audit_reaches(|rows| ended(rows) == 2).await;
}
