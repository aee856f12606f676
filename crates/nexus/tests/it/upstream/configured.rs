//! mcp.json: where it is looked for, what it may say, and what happens when it changes.

use serde_json::{Value, json};

use crate::support::{Hub, hostile, put, test_server, text_of, until, with};

use super::{echo, look};

fn nexus() -> &'static str {
    env!("CARGO_BIN_EXE_nexus")
}

#[tokio::test]
async fn a_claude_code_projects_file_works_unchanged_after_one_yes() {
    let file = json!({ "mcpServers": { "tester": { "type": "stdio", "command": nexus(), "args": ["test-server"], "env": {} } } });
    let setup = Hub::start().robot().work_file(".mcp.json", &file.to_string());
    let mut hub = setup.await;
    // A checked-out repository starts nothing by itself.
    hub.upstream_reaches("tester", |now| !now.is_null() && now["state"] != "connecting").await;
    assert_ne!(hub.upstream("tester").await["state"], "ready");
    assert!(hub.descendants().is_empty(), "{:?}", hub.descendants());
    assert!(!hub.robot().tools().await.iter().any(|name| name.starts_with("mcp_tester_")));
    let shown = hub.mcp(&["list"]).await.ok();
    assert!(shown.contains("tester"), "{shown}");

    hub.mcp(&["connect", "tester", "--yes"]).await.ok();
    hub.upstream_is("tester", "ready").await;
    assert_eq!(text_of(&hub.robot().call("mcp_tester_add", json!({ "a": 2, "b": 3 })).await), "5");

    // The yes is remembered, for this very entry in this very file.
    hub.restart().await;
    hub.upstream_is("tester", "ready").await;
    assert_eq!(text_of(&echo(&hub.robot(), "tester", "x").await), "x");
}

#[tokio::test]
async fn a_project_entry_that_changes_waits_for_another_yes() {
    let entry = |more: &str| json!({ "mcpServers": { "tester": { "command": nexus(), "args": ["test-server"], "env": { "X": more } } } });
    let hub = Hub::start().robot().work_file(".mcp.json", &entry("1").to_string()).await;
    hub.upstream_reaches("tester", |now| !now.is_null()).await;
    hub.mcp(&["connect", "tester", "--yes"]).await.ok();
    hub.upstream_is("tester", "ready").await;
    put(&hub.path(".mcp.json"), &entry("2").to_string());
    hub.upstream_reaches("tester", |now| now["state"] != "ready").await;
    until("its process to end", || hub.descendants().len() <= 1).await;
}

#[tokio::test]
async fn nearer_files_beat_farther_ones_and_a_lone_enabled_false_switches_off() {
    let home = json!({ "servers": {
        "both": with(hostile("good who=home"), json!({})),
        "off": hostile("good"),
        "home-only": hostile("good who=home"),
    } });
    let near = json!({ "servers": { "both": hostile("good who=near"), "off": { "enabled": false } } });
    let beside = json!({ "mcpServers": { "both": hostile("good who=beside") } });
    let hub = Hub::start().robot();
    let hub = hub.home_file(".nexus/mcp.json", &home.to_string()).work_file(".nexus/mcp.json", &near.to_string());
    let hub = hub.work_file(".mcp.json", &beside.to_string()).await;
    hub.upstream_is("home-only", "ready").await;
    hub.upstream_reaches("both", |now| !now.is_null()).await;
    hub.mcp(&["connect", "both", "--yes"]).await.ok();
    hub.upstream_is("both", "ready").await;
    let seen = look(&hub.robot(), "both").await;
    assert_eq!(seen["argv"].as_array().unwrap().last(), Some(&json!("who=near")), "{seen}");
    assert!(!hub.robot().tools().await.iter().any(|name| name.starts_with("mcp_off_")));
    let refused = hub.mcp(&["connect", "off"]).await;
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.stderr.contains("switched off") || refused.stderr.contains("enabled"), "{refused:?}");
}

#[tokio::test]
async fn one_bad_entry_stops_no_other_and_is_named_with_its_place() {
    let text = format!(
        r#"{{
  "servers": {{
    "good": {},
    "nowhere": {{ "timeout": 5 }},
    "twofold": {{ "command": ["x"], "url": "http://127.0.0.1/mcp" }},
    "unset": {{ "command": ["x"], "args": ["${{NOT_SET_ANYWHERE}}"] }},
    "odd": {{ "command": ["x"], "timeout": "soon" }},
    "future": {{ "command": ["{}", "test-server"], "sparkle": true }}
  }}
}}"#,
        hostile("good"),
        nexus()
    );
    let hub = Hub::start().robot().home_file(".nexus/mcp.json", &text).await;
    hub.upstream_is("good", "ready").await;
    hub.upstream_is("future", "ready").await;
    let said = hub.says("NOT_SET_ANYWHERE").await;
    for place in ["mcp.json:5:", "mcp.json:6:", "mcp.json:7:"] {
        assert!(said.contains(place), "no {place} in {said}");
    }
    assert!(said.contains("sparkle"), "{said}");
    let refused = hub.mcp(&["connect", "nowhere"]).await;
    assert!(refused.code != Some(0) && refused.stderr.contains("neither"), "{refused:?}");
}

#[tokio::test]
async fn edits_are_picked_up_and_leave_other_servers_alone() {
    let servers = json!({ "a": hostile("good"), "b": hostile("good n=1") });
    let hub = Hub::start().robot().upstreams(&servers).await;
    hub.upstreams_are_ready(&servers).await;
    let client = hub.legacy_robot().await;
    let (a, b) = (super::pid(&client, "a").await, super::pid(&client, "b").await);
    hub.configures(&json!({ "a": hostile("good"), "b": hostile("good n=2"), "c": test_server() }));
    hub.upstream_is("c", "ready").await;
    until("the changed server's old process to end", || !crate::support::is_alive(b)).await;
    hub.upstream_is("b", "ready").await;
    assert_eq!(super::pid(&client, "a").await, a, "an unchanged server is not touched");
    assert_eq!(look(&client, "b").await["argv"].as_array().unwrap().last(), Some(&json!("n=2")));

    // A file that is broken for a moment changes nothing but the log.
    put(&hub.path("home/.nexus/mcp.json"), "{ \"servers\": ");
    hub.says("mcp.json:1:").await;
    assert_eq!(super::pid(&client, "a").await, a);
    hub.configures(&json!({ "c": test_server() }));
    until("the others to end", || !crate::support::is_alive(a)).await;
    assert_eq!(text_of(&client.call("mcp_c_add", json!({ "a": 2, "b": 3 })).await), "5");
}

#[tokio::test]
async fn servers_are_added_and_removed_by_command_and_the_rest_of_the_file_stays() {
    let hub = Hub::start().robot().upstreams(&json!({ "kept": with(test_server(), json!({ "timeout": 7 })) })).await;
    hub.upstream_is("kept", "ready").await;
    hub.mcp(&["add", "new", "--env", "A=B", "--", nexus(), "test-server"]).await.ok();
    hub.upstream_is("new", "ready").await;
    assert_eq!(text_of(&hub.robot().call("mcp_new_add", json!({ "a": 2, "b": 3 })).await), "5");
    let file = std::fs::read_to_string(hub.path("home/.nexus/mcp.json")).unwrap();
    let file: Value = serde_json::from_str(&file).unwrap();
    assert_eq!(file["servers"]["kept"]["timeout"], 7, "{file}");
    assert_ne!(hub.mcp(&["add", "new", "--", "x"]).await.code, Some(0), "a name that is taken");
    hub.mcp(&["remove", "new"]).await.ok();
    hub.upstream_reaches("new", Value::is_null).await;
    assert_eq!(text_of(&echo(&hub.robot(), "kept", "x").await), "x");
}

#[tokio::test]
async fn what_other_programs_have_configured_is_shown_first_and_then_taken_over() {
    let claude = json!({ "mcpServers": { "from-claude": { "command": nexus(), "args": ["test-server"] } } });
    let cursor = json!({ "mcpServers": { "from-cursor": { "url": "http://127.0.0.1:9/mcp" } } });
    let codex = format!("[mcp_servers.from-codex]\ncommand = \"{}\"\nargs = [\"test-server\"]\n", nexus());
    let older = json!({ "servers": { "from-older": { "command": [nexus(), "test-server"] } } });
    let hub = Hub::start()
        .robot()
        .home_file(".claude.json", &claude.to_string())
        .home_file(".cursor/mcp.json", &cursor.to_string());
    let hub = hub.home_file(".codex/config.toml", &codex).home_file(".nexus3/mcp.json", &older.to_string()).await;
    let shown = hub.mcp(&["import"]).await;
    for name in ["from-claude", "from-cursor", "from-codex", "from-older"] {
        assert!(format!("{}{}", shown.stdout, shown.stderr).contains(name), "{name}: {shown:?}");
    }
    assert!(!hub.path("home/.nexus/mcp.json").exists(), "only shown");
    hub.mcp(&["import", "--yes"]).await.ok();
    for name in ["from-claude", "from-codex", "from-older"] {
        hub.upstream_is(name, "ready").await;
    }
    assert_eq!(text_of(&hub.robot().call("mcp_from_claude_add", json!({ "a": 2, "b": 3 })).await), "5");
}
