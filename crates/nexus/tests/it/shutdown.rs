//! The end: no new work, calls in flight are finished, nothing is left running.

use std::os::unix::fs::FileTypeExt;

use serde_json::json;
use tokio::net::TcpStream;

use crate::support::{Ask, Client, Hub, Wire, finish, is_alive, rpc, secret, until, within};

async fn sleeping(client: &Client, seconds: f64) -> Wire {
    let params = json!({ "name": "test_sleep", "arguments": { "seconds": seconds }, "_meta": { "progressToken": 1 } });
    let mut wire = client.start(&client.message("tools/call", params)).await;
    assert!(wire.head().await.is_stream());
    wire.next().await;
    wire
}

/// What is left in the data folder that only a running hub should have.
fn leftovers(hub: &Hub) -> Vec<String> {
    let files = std::fs::read_dir(&hub.data).unwrap().map(|file| file.unwrap());
    let sockets = files.filter(|file| file.file_type().unwrap().is_socket());
    sockets.map(|file| file.file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn an_idle_hub_ends_at_once_and_cleanly() {
    let mut hub = Hub::start().await;
    let sockets = leftovers(&hub);
    let is_known = |name: &String| name == "control.sock" || name.starts_with("bell-");
    assert!(sockets.len() == 2 && sockets.iter().all(is_known), "{sockets:?}");
    hub.modern(&hub.key).tools().await;
    assert_eq!(hub.stop().await.code(), Some(0));
    assert!(leftovers(&hub).is_empty());
    let rows = hub.audit().await;
    assert_eq!(rows.first().unwrap().event, "hub_started");
    assert_eq!(rows.last().unwrap().event, "hub_stopped");
    assert!(rows[0].detail.as_ref().unwrap().contains(&hub.address), "{:?}", rows[0]);
}

#[tokio::test]
async fn ctrl_c_is_a_clean_end_too() {
    let mut hub = Hub::start().await;
    crate::support::signal(hub.pid, rustix::process::Signal::INT);
    assert_eq!(hub.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_call_in_flight_is_answered_and_nobody_new_is_let_in() {
    let mut hub = Hub::start().conformance().await;
    let mut waiting = Vec::new();
    for client in hub.both(&hub.key).await {
        waiting.push(sleeping(&client, 3.0).await);
    }
    let mut sse = hub.sse(&hub.key).await;
    let params = json!({ "name": "test_sleep", "arguments": { "seconds": 3 }, "_meta": { "progressToken": 1 } });
    sse.post(&rpc(77, "tools/call", &params)).await;
    sse.stream.next().await;

    hub.terminate();
    hub.says("ending; calls in flight have 10 s").await;
    let address = hub.address.clone();
    within("the end of listening", async { while TcpStream::connect(&address).await.is_ok() {} }).await;
    assert!(hub.is_running());
    for mut wire in waiting {
        let mut last = wire.next().await;
        while let Some(event) = wire.event().await {
            last = event.json();
        }
        assert_eq!(last["result"]["isError"], false, "{last}");
    }
    assert_eq!(hub.ended().await.code(), Some(0), "{}", hub.said());
    let rows = hub.audit().await;
    assert_eq!(rows.last().unwrap().event, "hub_stopped");
    assert_eq!(rows.iter().filter(|row| row.is("call test_sleep allowed ok")).count(), 3, "{rows:#?}");
}

#[tokio::test]
async fn a_call_in_flight_on_a_stream_is_answered_before_the_stream_ends() {
    let mut hub = Hub::start().conformance().await;
    let mut sse = hub.sse(&hub.key).await;
    let params = json!({ "name": "test_sleep", "arguments": { "seconds": 2 }, "_meta": { "progressToken": 1 } });
    sse.post(&rpc(77, "tools/call", &params)).await;
    sse.stream.next().await;
    hub.terminate();
    let mut answered = false;
    while let Some(event) = sse.stream.event().await {
        answered |= event.json()["id"] == 77;
    }
    assert!(answered, "{}", hub.said());
    assert_eq!(hub.ended().await.code(), Some(0));
}

#[tokio::test]
async fn open_streams_do_not_hold_up_the_end() {
    let mut hub = Hub::start().await;
    let client = hub.legacy(&hub.key).await;
    let get = Ask::get("/mcp").key(&hub.key).header("Mcp-Session-Id", client.session.as_ref().unwrap());
    let (_, mut listening) = hub.open(&get).await;
    let mut sse = hub.sse(&hub.key).await;
    let modern = hub.modern(&hub.key);
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    let subscribe = modern.message("subscriptions/listen", wanted);
    let mut subscribed = modern.start(&subscribe).await;
    let mut idle = hub.connect().await;
    assert_eq!(idle.ask(&Ask::get("/health")).await.status(), 200);

    assert_eq!(hub.stop().await.code(), Some(0), "{}", hub.said());
    assert!(!hub.said().contains("did not end within"), "{}", hub.said());
    assert!(listening.event().await.is_none());
    assert!(sse.stream.event().await.is_none());
    // A subscription ends with its answer.
    let ended = finish(&mut subscribed).await;
    assert_eq!(ended.message()["id"], subscribe["id"], "{ended:?}");
    assert_eq!(ended.result()["resultType"], "complete");
    assert!(idle.closes().await);
}

#[tokio::test]
async fn half_a_request_does_not_hold_up_the_end() {
    let mut hub = Hub::start().await;
    let mut half = Vec::new();
    for bytes in ["", "POST /mcp HTTP/1.1\r\nHost: loc"] {
        for _ in 0..50 {
            let mut wire = hub.connect().await;
            wire.write(bytes.as_bytes()).await;
            half.push(wire);
        }
    }
    hub.modern(&hub.key).tools().await;
    assert_eq!(hub.stop().await.code(), Some(0), "{}", hub.said());
    assert!(!hub.said().contains("did not end within"), "{}", hub.said());
}

#[tokio::test]
async fn half_a_body_does_not_hold_up_the_end() {
    let mut hub = Hub::start().await;
    let client = hub.modern(&hub.key);
    let ask = client.ask(&client.message("tools/list", json!({})));
    let mut half = Vec::new();
    for length in ["1000", "100000"].repeat(3) {
        let mut wire = hub.connect().await;
        wire.send(&ask.clone().header("Content-Length", length)).await;
        half.push(wire);
    }
    client.tools().await;
    assert_eq!(hub.stop().await.code(), Some(0), "{}", hub.said());
    assert!(!hub.said().contains("did not end within"), "{}", hub.said());
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let mut hub = Hub::start().conformance().await;
    let client = hub.legacy(&hub.key).await;
    let _call = sleeping(&client, 600.0).await;
    hub.terminate();
    hub.says("a second signal ends at once").await;
    assert!(hub.is_running());
    assert_eq!(hub.stop().await.code(), Some(1));
    // Not after the ten seconds that a single one gives.
    assert!(!hub.said().contains("did not end within"), "{}", hub.said());
    assert!(hub.said().contains("ended at once"), "{}", hub.said());
}

/// A command that runs for long: its number and that of what it started.
async fn running(hub: &Hub) -> (Wire, Vec<u32>) {
    let file = hub.path("pids");
    let command = format!("sleep 600 & echo $$ $! > {0}.new; mv {0}.new {0}; wait", file.display());
    let client = hub.legacy(&secret("robot")).await;
    let params = json!({ "name": "run_command", "arguments": { "cmd": command, "timeout": 600 } });
    let wire = client.start(&client.message("tools/call", params)).await;
    until("the command to start", || file.exists()).await;
    let pids = std::fs::read_to_string(&file).unwrap().split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    (wire, pids)
}

#[tokio::test]
async fn a_command_that_is_still_running_at_a_second_signal_does_not_outlive_the_hub() {
    let mut hub = Hub::start().key("robot", "level: yolo").await;
    let (_wire, pids) = running(&hub).await;
    hub.terminate();
    hub.says("a second signal ends at once").await;
    hub.stop().await;
    until("the end of the group", || !pids.iter().any(|pid| is_alive(*pid))).await;
}

#[tokio::test]
async fn a_command_that_does_not_end_in_time_is_killed_and_its_end_recorded() {
    let mut hub = Hub::start().key("robot", "level: yolo").await;
    let (_wire, pids) = running(&hub).await;
    assert_eq!(hub.stop().await.code(), Some(1), "{}", hub.said());
    until("the end of the group", || !pids.iter().any(|pid| is_alive(*pid))).await;
    assert!(leftovers(&hub).is_empty());
    let told: Vec<String> =
        hub.audit().await.iter().map(|row| row.told()).filter(|told| told.contains("run_command")).collect();
    assert_eq!(told.first().map(String::as_str), Some("begun run_command allowed"));
    assert_eq!(told.len(), 2, "what was begun has an end: {told:?}");
}

#[tokio::test]
async fn a_hub_that_was_killed_leaves_nothing_in_the_way_of_the_next() {
    let mut hub = Hub::start().await;
    hub.modern(&hub.key).tools().await;
    crate::support::signal(hub.pid, rustix::process::Signal::KILL);
    hub.ended().await;
    let again = Hub::start().data(&hub.data).await;
    assert!(!again.modern(&again.key).tools().await.is_empty());
    again.nexus(&["key", "list"]).await.ok();
}
