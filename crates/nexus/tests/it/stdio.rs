//! `nexus stdio`: a door that a client starts itself, alone or beside a daemon.

use serde_json::json;

use crate::support::{Hub, Program, Stdio, is_alive, signal, within};

fn alone(folder: &tempfile::TempDir) -> Program {
    Program::new(&["stdio"]).data(&folder.path().join("data")).current_dir(folder.path())
}

#[tokio::test]
async fn stdout_carries_only_messages_and_the_end_of_stdin_is_a_clean_end() {
    let folder = tempfile::TempDir::new().unwrap();
    // `Stdio::next` fails on any line that is not a message.
    let mut door = Stdio::legacy(&alone(&folder).env("NEXUS_LOG", "debug")).await;
    let pong = door.request("ping", json!({})).await;
    assert_eq!(pong["result"], json!({}));
    let called = door.request("tools/call", json!({ "name": "get_session_info" })).await;
    assert_eq!(called["result"]["structuredContent"]["principal"], "local");
    assert_eq!(called["result"]["structuredContent"]["level"], "trusted");
    let (rest, code) = door.end().await;
    assert_eq!((rest, code), (vec![], Some(0)));
}

#[tokio::test]
async fn what_was_asked_before_the_end_of_stdin_is_still_answered() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut door = Stdio::legacy(&alone(&folder)).await;
    for id in 100..110 {
        let params = json!({ "name": "list_directory", "arguments": { "path": "/" } });
        door.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })).await;
    }
    let (rest, code) = door.end().await;
    let mut answered: Vec<u64> = rest.iter().filter_map(|message| message["id"].as_u64()).collect();
    answered.sort_unstable();
    assert_eq!(answered, (100..110).collect::<Vec<_>>());
    assert_eq!(code, Some(0));
}

#[tokio::test]
async fn the_first_message_decides_the_era_and_a_probe_does_not_hurt_the_old_one() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut door = Stdio::modern(&alone(&folder));
    let found = door.request("server/discover", json!({})).await;
    assert_eq!(found["result"]["supportedVersions"][0], "2026-07-28");
    assert_eq!(found["result"]["resultType"], "complete");
    let client = json!({ "name": "it", "version": "1" });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    door.send(&json!({ "jsonrpc": "2.0", "id": "init", "method": "initialize", "params": params })).await;
    assert_eq!(door.next().await.unwrap()["result"]["protocolVersion"], "2025-06-18");
    door.send(&json!({ "jsonrpc": "2.0", "id": "list", "method": "tools/list" })).await;
    assert!(door.next().await.unwrap()["result"]["tools"].is_array());
    assert_eq!(door.end().await.1, Some(0));
}

#[tokio::test]
async fn several_doors_beside_a_daemon_all_work_and_say_who_holds_the_lock() {
    let hub = Hub::start().await;
    let program = hub.program(&["stdio"]);
    let mut doors = vec![Stdio::legacy(&program).await, Stdio::legacy(&program).await, Stdio::modern(&program)];
    for door in &mut doors {
        door.says(&format!("process {} does the background work", hub.pid)).await;
        let called = door.request("tools/call", json!({ "name": "get_session_info" })).await;
        assert_eq!(called["result"]["isError"], false, "{called}");
    }
    assert_eq!(hub.modern(&hub.key).call("get_session_info", json!({})).await["isError"], false);
    for mut door in doors {
        assert_eq!(door.end().await.1, Some(0), "{}", door.said());
    }
    let ended = |rows: &[crate::support::AuditRow]| {
        rows.iter().filter(|row| row.event == "session_ended" && row.transport.as_deref() == Some("stdio")).count()
    };
    hub.audit_reaches(|rows| ended(rows) == 3).await;
}

#[tokio::test]
async fn a_door_that_came_first_gives_way_to_a_daemon_and_goes_on_as_a_door() {
    let folder = tempfile::TempDir::new().unwrap();
    let data = folder.path().join("data");
    let mut door = Stdio::legacy(&alone(&folder)).await;
    // Keys can be made through whoever holds the folder.
    let nexus = Program::new(&["key", "new", "robot"]).data(&data).current_dir(folder.path());
    let key = nexus.run().await.ok().trim().to_owned();
    let hub = Hub::start().data(&data).await;
    assert!(!hub.modern(&key).tools().await.is_empty());
    assert!(door.request("tools/list", json!({})).await["result"].is_object());
    hub.nexus(&["key", "revoke", "robot"]).await.ok();
    assert_eq!(hub.ask(&crate::support::Client::hello("2025-11-25").key(&key)).await.status(), 401);
    assert_eq!(door.end().await.1, Some(0));
    assert!(data.join("control.sock").exists(), "the door took the daemon's socket with it");
    assert!(!hub.modern(&hub.key).tools().await.is_empty());
}

#[tokio::test]
async fn a_second_daemon_on_the_same_folder_is_refused_and_the_first_goes_on() {
    let hub = Hub::start().await;
    let ran = Hub::start().data(&hub.data).refused().await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains(&format!("process {} serves this data folder already", hub.pid)), "{ran:?}");
    assert!(ran.stderr.contains(&hub.address), "{ran:?}");
    assert_eq!(hub.modern(&hub.key).call("get_session_info", json!({})).await["isError"], false);
}

#[tokio::test]
async fn a_door_ends_on_a_signal_too() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut door = Stdio::legacy(&alone(&folder)).await;
    let pid = door.pid();
    signal(pid, rustix::process::Signal::TERM);
    assert!(within("the end of stdout", door.next()).await.is_none());
    crate::support::until("the end of the process", || !is_alive(pid)).await;
}

#[tokio::test]
async fn a_write_through_the_pipe_waits_for_approval_like_any_other() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut door = Stdio::legacy(&alone(&folder)).await;
    let path = folder.path().join("note");
    let arguments = json!({ "path": path, "content": "hi" });
    let written = door.request("tools/call", json!({ "name": "write_file", "arguments": arguments })).await;
    assert_eq!(written["result"]["structuredContent"]["status"], "approval_required", "{written}");
    assert!(!path.exists());
    door.end().await;
}
