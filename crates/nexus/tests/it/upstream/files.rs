//! What the operator is told of mcp.json, and what of it is there when a hub or a door starts.

use serde_json::{Value, json};

use crate::support::{Hub, Stdio, hostile, put, test_server};

fn nexus() -> &'static str {
    env!("CARGO_BIN_EXE_nexus")
}

fn names(listing: &Value) -> Vec<String> {
    let tools = listing["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listing}"));
    tools.iter().filter_map(|tool| tool["name"].as_str()).map(str::to_owned).collect()
}

#[tokio::test]
async fn the_first_listing_has_the_tools_of_servers() {
    let mut hub = Hub::start().robot().upstreams(&json!({ "t": test_server() })).await;
    hub.upstream_is("t", "ready").await;
    let mut door = Stdio::legacy(&hub.program(&["stdio"])).await;
    let listed = names(&door.request("tools/list", json!({})).await);
    assert!(listed.contains(&"mcp_t_add".to_owned()), "beside a hub: {listed:?}");

    // One that was met before is listed, whether it can be reached or not.
    hub.configures(&json!({ "t": hostile("silent") }));
    hub.restart().await;
    let listed = hub.robot().tools().await;
    assert!(listed.contains(&"mcp_t_add".to_owned()), "behind the ready line: {listed:?}");
}

#[tokio::test]
async fn a_door_of_its_own_lists_the_tools_of_servers_it_has_never_met() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    put(&home.join(".nexus/mcp.json"), &json!({ "servers": { "t": test_server() } }).to_string());
    let program = crate::support::Program::new(&["stdio"]).data(&folder.path().join("data"));
    let program = program.current_dir(folder.path()).env("HOME", home.to_str().unwrap());
    let mut door = Stdio::legacy(&program).await;
    let listed = names(&door.request("tools/list", json!({})).await);
    assert!(listed.contains(&"mcp_t_add".to_owned()), "{listed:?}");
}

#[tokio::test]
async fn what_is_wrong_with_the_files_is_told_wherever_one_looks() {
    let text =
        r#"{ "servers": { "good": { "command": "true", "lazy": true, "sparkle": 1 }, "bad": { "command": 7 } } }"#;
    let hub = Hub::start().robot().home_file(".nexus/mcp.json", text).await;
    let listed = hub.mcp(&["list"]).await;
    assert!(listed.stderr.contains("mcp.json:1:") && listed.stderr.contains("sparkle"), "{listed:?}");
    assert!(listed.stdout.lines().any(|line| line.contains("bad") && line.contains("faulty")), "{listed:?}");
    let told = hub.modern(&hub.key).call("list_upstreams", json!({ "name": "bad" })).await;
    let server = &told["structuredContent"]["servers"][0];
    assert!(server["state"] == "faulty" && server["why"].to_string().contains("command"), "{told}");

    let checked = hub.nexus(&["check"]).await;
    assert_eq!(checked.code, Some(2), "{checked:?}");
    assert!(checked.stderr.contains("mcp.json:1:") && checked.stderr.contains("sparkle"), "{checked:?}");
    put(&hub.path("home/.nexus/mcp.json"), "{ \"servers\": {} }");
    hub.nexus(&["check"]).await.ok();
}

#[tokio::test]
async fn servers_that_wait_for_a_yes_are_named_at_the_start_with_what_to_do() {
    let file = json!({ "mcpServers": { "tester": { "command": nexus(), "args": ["test-server"] } } });
    let hub = Hub::start().robot().work_file(".mcp.json", &file.to_string()).await;
    hub.says("nexus mcp connect tester").await;
}

#[tokio::test]
async fn what_switched_a_server_off_is_named() {
    let off = r#"{ "servers": { "t": { "enabled": false } } }"#;
    let hub = Hub::start().robot().upstreams(&json!({ "t": test_server() })).work_file(".nexus/mcp.json", off).await;
    let row = hub.listed("t").await;
    assert!(row["why"].to_string().contains("/.nexus/mcp.json:1"), "{row}");
    assert!(!row["why"].to_string().contains("home"), "{row}");
}

#[tokio::test]
async fn what_a_project_brings_is_imported_to_the_project_and_waits_for_a_yes() {
    let entry = json!({ "command": nexus(), "args": ["test-server"] });
    let theirs = json!({ "mcpServers": { "theirs": entry } }).to_string();
    let mine = json!({ "mcpServers": { "mine": entry } }).to_string();
    let hub = Hub::start().robot().work_file(".cursor/mcp.json", &theirs).home_file(".cursor/mcp.json", &mine).await;
    let shown = hub.mcp(&["import", "--yes"]).await.ok();
    assert!(shown.contains("./.cursor/mcp.json"), "{shown}");
    hub.upstream_is("mine", "ready").await;
    hub.says("nexus mcp connect theirs").await;
    assert_ne!(hub.upstream("theirs").await["state"], "ready");
    let file = |path: &str| std::fs::read_to_string(hub.path(path)).unwrap();
    assert!(file(".nexus/mcp.json").contains("theirs") && !file("home/.nexus/mcp.json").contains("theirs"));
}

#[tokio::test]
async fn a_hub_that_does_not_read_the_projects_file_is_told_of() {
    let hub = Hub::start().robot().home_file("x", "").await;
    let elsewhere = hub.path("elsewhere");
    std::fs::create_dir_all(&elsewhere).unwrap();
    let add =
        hub.program(&["mcp", "add", "t", "--project", "http://127.0.0.1:9/mcp"]).current_dir(&elsewhere).run().await;
    assert!(add.code == Some(0) && add.stderr.contains("does not read it"), "{add:?}");
    let bare = hub.mcp(&["add", "bad"]).await;
    assert!(bare.code != Some(0) && bare.stderr.contains("-- COMMAND"), "{bare:?}");
}

#[tokio::test]
async fn lists_stay_narrow_in_a_pipe() {
    let long = "x".repeat(300);
    let servers = json!({ "long": { "command": ["nothing-of-that-name", long] }, "web": { "url": format!("http://127.0.0.1:9/{long}") } });
    let hub = Hub::start().robot().upstreams(&servers).await;
    for args in [&["mcp", "list"][..], &["tools"]] {
        let shown = hub.nexus(args).await.ok();
        assert!(shown.lines().all(|line| line.chars().count() <= 120), "{shown}");
    }
}
