//! What a hostile or unlucky user could do to the hub, and what becomes of it.

use std::net::TcpListener;

use serde_json::{Value, json};
use sqlx::ConnectOptions;

use crate::support::{Client, Hub, Program, Stdio, rpc, secret, within, write};

#[tokio::test]
async fn any_number_of_subscriptions_leaves_a_pipe_open_for_the_rest() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut door = Stdio::modern(&Program::new(&["stdio"]).data(&folder.path().join("data")));
    for id in 1_000..1_400 {
        let params = json!({
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
            "notifications": { "toolsListChanged": true },
        });
        door.send(&rpc(id, "subscriptions/listen", &params)).await;
    }
    let listed = door.request("tools/list", json!({})).await;
    assert!(listed["result"]["tools"].is_array(), "{listed}");
    assert_eq!(door.end().await.1, Some(0));
}

#[tokio::test]
async fn the_hubs_own_key_file_cannot_be_read_wherever_it_lies() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("api-key");
    write(&file, &secret("filed"));
    std::fs::hard_link(&file, folder.path().join("harmless.txt")).unwrap();
    std::os::unix::fs::symlink(&file, folder.path().join("link.txt")).unwrap();
    let hub =
        Hub::start().keyless().env("MCP_API_KEY_FILE", file.to_str().unwrap()).key("guest", "level: sandboxed").await;
    let guest = hub.modern(&secret("guest"));
    for name in ["api-key", "harmless.txt", "link.txt"] {
        let read = guest.call("read_file", json!({ "path": folder.path().join(name) })).await;
        assert_eq!(read["isError"], true, "{name}");
        assert!(!read.to_string().contains(&secret("filed")), "{name}");
    }
}

#[tokio::test]
async fn a_first_start_that_fails_does_not_use_up_the_key() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let folder = tempfile::TempDir::new().unwrap();
    let data = folder.path().join("data");
    let refused = Hub::start().keyless().data(&data).env("MCP_PORT", &port).refused().await;
    assert!(refused.stderr.contains("is taken by another program"), "{}", refused.stderr);
    assert!(!data.join("key").exists());
    let hub = Hub::start().keyless().data(&data).await;
    assert!(hub.said().contains("A key was made for this hub"));
}

#[tokio::test]
async fn a_data_folder_may_lie_deep() {
    let folder = tempfile::TempDir::new().unwrap();
    let data = folder.path().join("a-folder-with-a-long-name-of-its-own/".repeat(5));
    let hub = Hub::start().data(&data).await;
    let listed = hub.nexus(&["key", "list", "--json"]).await.ok();
    assert!(listed.contains("default"), "{listed}");
    assert!(hub.nexus(&["tools"]).await.ok().contains("read_file"));
}

#[tokio::test]
async fn a_folder_of_other_things_is_not_taken_over() {
    let folder = tempfile::TempDir::new().unwrap();
    let data = folder.path().join("shared");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    write(&data.join("somebodys"), "file");
    let refused = Hub::start().data(&data).refused().await;
    assert!(refused.stderr.contains("a folder of its own"), "{}", refused.stderr);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&data).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o777);
}

#[tokio::test]
async fn an_agents_key_sees_none_of_the_tools_of_the_house() {
    let targets = "agents: { default: homelab, targets: { homelab: { worker: {} } } }";
    let hub = Hub::start().yaml(targets).key("agent", "target: homelab").await;
    let agent = hub.modern(&secret("agent"));
    let house = hub.modern(&hub.key).tools().await;
    assert!(agent.tools().await.iter().all(|tool| !house.contains(tool)));
    let unknown = agent.send("tools/call", json!({ "name": "get_env", "arguments": {} })).await;
    assert_eq!(unknown.code(), -32602);
}

#[tokio::test]
async fn a_batch_costs_what_its_requests_cost() {
    let hub = Hub::start().yaml("server: { rate_limit: { per_second: 1, burst: 20 } }").await;
    let old = Client::initialized(&hub, &hub.key, "2025-03-26").await;
    let batch: Vec<Value> = (0..40).map(|id| rpc(id, "ping", &json!({}))).collect();
    assert_eq!(hub.ask(&old.ask(&json!(batch))).await.status(), 429);
}

#[tokio::test]
async fn one_bad_message_of_a_batch_does_not_lose_the_answers_of_the_others() {
    let hub = Hub::start().await;
    let old = Client::initialized(&hub, &hub.key, "2025-03-26").await;
    let bad = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": [] });
    let batch = json!([rpc(1, "ping", &json!({})), bad, { "id": 3 }, rpc(2, "tools/list", &json!({}))]);
    let answers = hub.ask(&old.ask(&batch)).await.json();
    let mut ids: Vec<String> = answers.as_array().unwrap().iter().map(|answer| answer["id"].to_string()).collect();
    ids.sort();
    assert_eq!(ids, ["1", "2", "3"]);
}

#[tokio::test]
async fn a_second_line_of_a_proxy_is_believed_like_a_second_entry() {
    let hub = Hub::start().yaml("server: { trusted_proxies: [127.0.0.1] }").await;
    let ask =
        Client::hello("2025-11-25").header("X-Forwarded-For", "6.6.6.6").header("x-forwarded-for ", "203.0.113.9");
    let mut wire = hub.connect().await;
    let two = String::from_utf8(ask.render("127.0.0.1")).unwrap().replace("x-forwarded-for :", "X-Forwarded-For:");
    wire.write(two.as_bytes()).await;
    assert_eq!(wire.response().await.status(), 401);
    let rows = hub.audit_reaches(|rows| rows.iter().any(|row| row.event == "key_refused")).await;
    let refused = rows.iter().find(|row| row.event == "key_refused").unwrap();
    assert_eq!(refused.detail.as_deref(), Some("no key from 203.0.113.9"));
}

#[tokio::test]
async fn what_cannot_be_recorded_does_not_happen_and_reads_go_on() {
    let hub = Hub::start().key("robot", "level: yolo").await;
    let robot = hub.modern(&secret("robot"));
    robot.does("write_file", json!({ "path": hub.path("before"), "content": "x" })).await;

    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(hub.data.join("nexus.db"));
    let mut store = options.connect().await.unwrap();
    sqlx::query("ALTER TABLE audit RENAME TO hidden").execute(&mut store).await.unwrap();
    let refused =
        within("the refusal", robot.call("write_file", json!({ "path": hub.path("note"), "content": "x" }))).await;
    assert_eq!(refused["isError"], true);
    assert!(refused.to_string().contains("nothing was changed"), "{refused}");
    assert!(!hub.path("note").exists());
    robot.does("list_directory", json!({ "path": "/" })).await;
    let health = hub.ask(&crate::support::Ask::get("/health")).await.json();
    assert_eq!(health["ok"], false, "{health}");

    sqlx::query("ALTER TABLE hidden RENAME TO audit").execute(&mut store).await.unwrap();
    robot.does("write_file", json!({ "path": hub.path("note"), "content": "x" })).await;
    hub.audit_has("call list_directory allowed ok").await;
}

#[tokio::test]
async fn an_argument_of_any_size_and_shape_is_answered_shortly_and_disturbs_nobody() {
    let hub = Hub::start().key("guest", "level: sandboxed").await;
    let guest = hub.modern(&secret("guest"));
    for hostile in ["bearer ", "ghp_", "://", "-----BEGIN ", "password=", "--token ", "eyJ.", "\"'"] {
        let arguments = json!({ "path": "/x", "offset": hostile.repeat(1_000_000 / hostile.len()) });
        let refused = guest.call("read_file", arguments).await;
        assert_eq!(refused["isError"], true);
        assert!(refused.to_string().len() < 10_000, "{hostile}: {}", refused.to_string().len());
    }
    assert!(!guest.tools().await.is_empty());
}
