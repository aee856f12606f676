//! Questions at every door, and what becomes of one when the client or the hub goes away.

use serde_json::json;

use crate::asking::{status, touch, why};
use crate::support::{Hub, Stdio, decided};

#[tokio::test]
async fn the_door_on_stdio_asks_in_both_eras() {
    let hub = Hub::start().await;
    let program = hub.program(&["stdio"]);
    let mut legacy = Stdio::legacy_answering(&program, Some(decided("session"))).await;
    let mut modern = Stdio::modern(&program);
    modern.answer = Some(decided("session"));
    for door in [&mut legacy, &mut modern] {
        let first = door.call("run_command", touch(&hub, "a")).await;
        assert_eq!(first["isError"], false, "{first}");
        let asked = door.heard.len();
        door.call("run_command", touch(&hub, "b")).await;
        assert!(asked > 0 && door.heard.len() == asked && hub.path("b").exists(), "{:?}", door.heard);
        std::fs::remove_file(hub.path("b")).unwrap();
    }
    let mut deaf = Stdio::legacy(&program).await;
    assert_eq!(status(&deaf.call("run_command", touch(&hub, "b")).await), "approval_required");
    for door in [&mut legacy, &mut modern, &mut deaf] {
        assert_eq!(door.end().await.1, Some(0));
    }
}

#[tokio::test]
async fn the_stream_of_2024_carries_questions_for_clients_that_know_them() {
    let hub = Hub::start().await;
    let call = |name: &str| json!({ "name": "run_command", "arguments": touch(&hub, name) });
    let mut able = hub.sse_answering(&hub.key, "2025-06-18", Some(decided("once"))).await;
    let done = able.request("tools/call", call("x")).await["result"].clone();
    assert_eq!(done["isError"], false, "{done}");
    assert_eq!(able.heard.iter().filter(|heard| heard["method"] == "elicitation/create").count(), 1);
    let mut old = hub.sse(&hub.key).await;
    assert_eq!(status(&old.request("tools/call", call("y")).await["result"]), "approval_required");
}

#[tokio::test]
async fn a_cancelled_question_is_over_and_the_next_one_is_put() {
    let hub = Hub::start().await;
    let client = hub.legacy_asked(&hub.key).await;
    let message = client.message("tools/call", json!({ "name": "run_command", "arguments": touch(&hub, "x") }));
    let mut wire = client.start(&message).await;
    wire.head().await;
    let question = wire.next().await;
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": message["id"] } });
    client.exchange(&client.ask(&cancel)).await;
    hub.audit_has("call run_command cancelled").await;
    // A late answer answers nothing.
    client.answer(&question["id"], &decided("session")).await;
    let (result, asked) = client.call_answering("run_command", touch(&hub, "x"), &decided("no")).await;
    assert_eq!((why(&result), asked.len()), ("denied", 1));
    assert!(!hub.path("x").exists());
}

#[tokio::test]
async fn a_client_that_hangs_up_is_not_waited_for() {
    let hub = Hub::start().await;
    let client = hub.legacy_asked(&hub.key).await;
    let message = client.message("tools/call", json!({ "name": "run_command", "arguments": touch(&hub, "x") }));
    let mut wire = client.start(&message).await;
    wire.head().await;
    wire.next().await;
    drop(wire);
    hub.audit_has("call run_command cancelled").await;
    assert!(!hub.path("x").exists());
}

#[tokio::test]
async fn a_hub_that_ends_does_not_wait_for_an_answer() {
    let mut hub = Hub::start().await;
    let client = hub.legacy_asked(&hub.key).await;
    let message = client.message("tools/call", json!({ "name": "run_command", "arguments": touch(&hub, "x") }));
    let mut wire = client.start(&message).await;
    wire.head().await;
    wire.next().await;
    let started = std::time::Instant::now();
    hub.stop().await;
    assert!(started.elapsed().as_secs() < 5);
    assert!(!hub.path("x").exists());
}
