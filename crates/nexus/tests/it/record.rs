//! The record: what is in it, how it is read, and what it takes to lose or to change a row.

mod flipped;
pub mod postgres;
mod reading;
mod retention;
mod unwritable;

use serde_json::{Value, json};

use crate::support::{AuditRow, Client, Hub, Stdio, secret};

const OPERATOR: &str = "approval: { mode: operator }";

fn code_of(result: &Value) -> String {
    result["structuredContent"]["code"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
}

/// Everything that leaves a row, through every door.
async fn mixed_load(hub: &Hub) {
    let (guest, robot) = (secret("guest"), secret("robot"));
    for client in hub.both(&hub.key).await {
        client.does("list_directory", json!({ "path": "/" })).await;
        client.call("read_file", json!({ "path": hub.path("none") })).await;
        unknown(&client, "no_such_tool").await;
        client.call("list_directory", json!({ "wrong": true })).await;
        client.call("run_command", json!({ "cmd": "curl https://me:s3cretpassw0rd@host/" })).await;
    }
    for client in hub.both(&guest).await {
        client.call("write_file", json!({ "path": hub.path("x"), "content": "x" })).await;
    }
    for client in hub.both(&robot).await {
        client.does("write_file", json!({ "path": hub.path("note"), "content": "x" })).await;
        client.does("run_command", json!({ "cmd": "exit 3", "node": "local" })).await;
    }
    hub.ask(&Client::hello("2025-11-25").key("nobody's")).await;
    let mut sse = hub.sse(&hub.key).await;
    sse.request("tools/call", json!({ "name": "list_directory", "arguments": { "path": "/" } })).await;
    let mut pipes = Stdio::legacy(&hub.program(&["stdio"])).await;
    pipes.request("tools/call", json!({ "name": "get_session_info", "arguments": {} })).await;
    assert_eq!(pipes.end().await.1, Some(0));
    cancelled_write(hub, &robot).await;

    let client = hub.legacy(&hub.key).await;
    let touch = json!({ "cmd": format!("touch {}", hub.path("touched").display()) });
    let code = code_of(&client.call("run_command", touch.clone()).await);
    hub.nexus(&["deny", &code]).await.ok();
    hub.nexus(&["approve", &code]).await.ok();
    client.does("run_command", touch).await;

    hub.nexus(&["key", "new", "made", "--session", "lease", "--approved", "write_*", "--read-only"]).await.ok();
    hub.nexus(&["key", "level", "made", "sandboxed"]).await.ok();
    hub.nexus(&["key", "revoke", "made"]).await.ok();
}

async fn unknown(client: &Client, tool: &str) {
    let answer = client.send("tools/call", json!({ "name": tool, "arguments": { "cmd": "=1+1" } })).await;
    assert_eq!(answer.code(), -32602);
}

async fn cancelled_write(hub: &Hub, key: &str) {
    let client = hub.modern(key);
    let file = hub.path("started");
    let arguments = json!({ "cmd": format!("touch {}; sleep 300", file.display()), "timeout": 300 });
    let call = client.message("tools/call", json!({ "name": "run_command", "arguments": arguments }));
    let wire = client.start(&call).await;
    crate::support::until("the command to start", || file.exists()).await;
    drop(wire);
    hub.audit_has("call run_command allowed cancelled").await;
}

fn loaded() -> crate::support::Setup {
    Hub::start().key("guest", "level: sandboxed").key("robot", "level: yolo").yaml(OPERATOR)
}

#[tokio::test]
async fn everything_that_happens_is_one_row_with_all_that_is_known_of_it_and_the_record_verifies() {
    let mut hub = loaded().await;
    mixed_load(&hub).await;
    assert!(hub.findings().await.is_empty(), "beside the running hub");
    hub.stop().await;
    assert!(hub.findings().await.is_empty());

    let rows = hub.audit().await;
    for row in &rows {
        assert_eq!(uuid_version(&row.id), '7', "{row:?}");
        assert!(row.at.ends_with('Z') && row.seq > 0 && row.hash.len() == 64 && !row.chain.is_empty(), "{row:?}");
    }
    for event in [
        "hub_started",
        "hub_stopped",
        "session_started",
        "session_ended",
        "key_refused",
        "key_made",
        "key_level",
        "key_revoked",
        "approved",
        "denied",
        "begun",
        "call",
    ] {
        assert!(rows.iter().any(|row| row.event == event), "no {event} in {rows:#?}");
    }
    let calls: Vec<&AuditRow> = rows.iter().filter(|row| row.tool.is_some()).collect();
    for row in &calls {
        every_call_has(row);
    }
    for outcome in ["ok", "refused", "failed", "cancelled", "waiting", "unknown_tool"] {
        assert!(calls.iter().any(|row| row.outcome.as_deref() == Some(outcome)), "no {outcome} in {calls:#?}");
    }
    let seen = |of: fn(&AuditRow) -> &Option<String>| {
        let mut seen: Vec<&str> = calls.iter().filter_map(|row| of(row).as_deref()).collect();
        seen.sort_unstable();
        seen.dedup();
        seen.join(" ")
    };
    assert_eq!(seen(|row| &row.transport), "http sse stdio");
    assert_eq!(seen(|row| &row.era), "legacy modern");
    assert_eq!(seen(|row| &row.principal), "default guest local robot");
    assert!(seen(|row| &row.client).contains("it"));
    assert_eq!(seen(|row| &row.node), "local");
    let kept = format!("{rows:?}");
    assert!(!kept.contains("s3cretpassw0rd"), "arguments are redacted");
}

fn uuid_version(id: &str) -> char {
    id.chars().nth(14).unwrap()
}

#[track_caller]
fn every_call_has(row: &AuditRow) {
    let all = [&row.session, &row.principal, &row.transport, &row.era, &row.call_id, &row.arguments, &row.digest];
    assert!(all.iter().all(|field| field.is_some()), "{row:#?}");
    assert_eq!(row.digest.as_ref().unwrap().len(), 64);
    let outcome = row.outcome.as_deref().unwrap_or_default();
    if row.event == "call" {
        assert!(!outcome.is_empty() && row.duration_us.is_some(), "{row:#?}");
    }
    if outcome == "unknown_tool" {
        return;
    }
    assert!(row.origin.is_some(), "{row:#?}");
    // Arguments that do not fit say what is wrong with them; there is no intent to tell of.
    if row.access.is_some() {
        assert!(row.summary.is_some() && row.decision.is_some(), "{row:#?}");
    } else {
        assert!(outcome == "refused" && row.detail.is_some(), "{row:#?}");
    }
}

#[tokio::test]
async fn a_level_for_a_time_is_in_force_and_falls_back_by_itself_with_rows_for_both() {
    let hub = Hub::start().await;
    let key = hub.nexus(&["key", "new", "robot"]).await.ok().trim().to_owned();
    let client = hub.modern(&key);
    let note = json!({ "path": hub.path("note"), "content": "x" });
    hub.nexus(&["key", "level", "robot", "yolo", "--for", "2s"]).await.ok();
    client.does("write_file", note.clone()).await;
    let levels = |rows: &[AuditRow]| rows.iter().filter(|row| row.event == "key_level").count();
    let rows = hub.audit_reaches(|rows| levels(rows) == 2).await;
    let asked = client.call("write_file", note).await;
    assert_eq!(asked["structuredContent"]["status"], "approval_required", "{asked}");
    let told: Vec<&str> =
        rows.iter().filter(|row| row.event == "key_level").filter_map(|row| row.detail.as_deref()).collect();
    assert!(told.iter().all(|detail| detail.contains("robot")), "{told:?}");
    assert!(told[0].contains("yolo") && told[1].contains("no longer yolo"), "{told:?}");
}

#[tokio::test]
async fn a_key_made_with_lease_approved_and_read_only_is_all_of_that() {
    let hub = Hub::start().await;
    let all = ["key", "new", "robot", "--session", "lease", "--approved", "write_file", "--read-only"];
    hub.nexus(&all).await.ok();
    let listed: Vec<Value> = serde_json::from_str(&hub.nexus(&["key", "list", "--json"]).await.ok()).unwrap();
    let robot = listed.iter().find(|key| key["name"] == "robot").unwrap();
    assert_eq!((&robot["read_only"], &robot["session"]), (&json!(true), &json!("lease")), "{robot}");
    assert_eq!(robot["approved"], json!(["write_file"]));

    let leased = hub.nexus(&["key", "new", "leased", "--session", "lease", "--approved", "write_file"]).await.ok();
    let (one, other) = (hub.legacy(leased.trim()).await, hub.legacy(leased.trim()).await);
    one.does("write_file", json!({ "path": hub.path("note"), "content": "x" })).await;
    let session = one.does("get_session_info", json!({})).await["session"].clone();
    assert_eq!(other.does("get_session_info", json!({})).await["session"], session, "its calls share a session");
}
