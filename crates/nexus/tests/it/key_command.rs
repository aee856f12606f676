//! `nexus key`: makes, lists and revokes keys, and is heard by a running hub at once.

use insta::assert_json_snapshot;
use serde_json::{Value, json};

use crate::support::{Ask, Client, Hub, Program, secret};

/// Makes a key through the command line.
async fn made(hub: &Hub, args: &[&str]) -> String {
    let args: Vec<&str> = ["key", "new"].iter().chain(args).copied().collect();
    hub.nexus(&args).await.ok().trim().to_owned()
}

async fn status(hub: &Hub, key: &str) -> u16 {
    hub.ask(&Client::hello("2025-11-25").key(key)).await.status()
}

#[tokio::test]
async fn a_new_key_works_at_once_and_a_revoked_one_no_longer() {
    let hub = Hub::start().await;
    let key = made(&hub, &["robot", "--level", "sandboxed"]).await;
    assert_eq!(status(&hub, &key).await, 200);
    let me = hub.modern(&key).does("get_session_info", json!({})).await;
    assert_eq!((&me["principal"], &me["level"]), (&json!("robot"), &json!("sandboxed")));
    let ran = hub.nexus(&["key", "revoke", "robot"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""));
    assert_eq!(status(&hub, &key).await, 401);
    let rows = hub.audit_reaches(|rows| rows.iter().any(|row| row.event == "key_revoked")).await;
    let told: Vec<_> = rows.iter().filter(|row| row.event.starts_with("key_")).map(|row| row.event.as_str()).collect();
    assert_eq!(told[..2], ["key_made", "key_revoked"]);
    assert!(!format!("{rows:?}{}", hub.said()).contains(&key));
}

#[tokio::test]
async fn a_new_key_sees_only_the_tools_it_was_made_for() {
    let hub = Hub::start().await;
    let key = made(&hub, &["reader", "--allow", "read_*", "--allow", "get_env", "--deny", "read_output"]).await;
    assert_eq!(hub.modern(&key).tools().await, ["get_env", "read_computer_file", "read_file", "read_upstream_log"]);
}

#[tokio::test]
async fn keys_are_made_and_revoked_without_a_hub_too() {
    let folder = tempfile::TempDir::new().unwrap();
    let data = folder.path().join("data");
    let nexus = |args: &[&str]| Program::new(args).data(&data).current_dir(folder.path()).run();
    let kept = nexus(&["key", "new", "kept"]).await.ok().trim().to_owned();
    let gone = nexus(&["key", "new", "gone", "--json"]).await.ok();
    let gone: Value = serde_json::from_str(&gone).unwrap();
    assert_eq!(gone["name"], "gone");
    nexus(&["key", "revoke", "gone"]).await.ok();

    let hub = Hub::start().keyless().data(&data).await;
    assert_eq!(status(&hub, &kept).await, 200);
    assert_eq!(status(&hub, gone["key"].as_str().unwrap()).await, 401);
    // Somebody can come in, so no key is made.
    assert!(!data.join("key").exists());
    let events: Vec<_> = hub.audit().await.into_iter().map(|row| row.event).take(3).collect();
    assert_eq!(events, ["key_made", "key_made", "key_revoked"]);
}

#[tokio::test]
async fn the_list_names_every_key_its_level_and_where_it_comes_from() {
    let hub = Hub::start().key("laptop", "level: yolo, deny: [run_command], expires: 2090-01-01T00:00:00Z").await;
    made(&hub, &["robot", "--level", "sandboxed", "--allow", "read_*"]).await;
    let listed: Value = serde_json::from_str(&hub.nexus(&["key", "list", "--json"]).await.ok()).unwrap();
    assert_json_snapshot!(listed, @r#"
    [
      {
        "name": "default",
        "level": "trusted",
        "source": "environment",
        "allow": [
          "*"
        ],
        "deny": [],
        "approved": [],
        "read_only": false,
        "session": "auto",
        "expires": null,
        "target": null,
        "raised": null,
        "raised_until": null
      },
      {
        "name": "laptop",
        "level": "yolo",
        "source": "file",
        "allow": [
          "*"
        ],
        "deny": [
          "run_command"
        ],
        "approved": [],
        "read_only": false,
        "session": "auto",
        "expires": "2090-01-01T00:00:00Z",
        "target": null,
        "raised": null,
        "raised_until": null
      },
      {
        "name": "robot",
        "level": "sandboxed",
        "source": "store",
        "allow": [
          "read_*"
        ],
        "deny": [],
        "approved": [],
        "read_only": false,
        "session": "auto",
        "expires": null,
        "target": null,
        "raised": null,
        "raised_until": null
      }
    ]
    "#);
    let table = hub.nexus(&["key", "list"]).await.ok();
    for word in ["default", "environment", "laptop", "robot", "sandboxed", "but not run_command"] {
        assert!(table.contains(word), "{table}");
    }
    assert!(!table.contains(&hub.key) && !table.contains(&secret("laptop")));
}

#[tokio::test]
async fn keys_of_the_file_and_the_environment_are_read_only_to_the_command() {
    let hub = Hub::start().key("laptop", "").await;
    for (name, word) in [("laptop", "nexus.yaml"), ("default", "MCP_API_KEY"), ("nobody", "no key named `nobody`")] {
        let ran = hub.nexus(&["key", "revoke", name]).await;
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains(word), "{ran:?}");
    }
    assert_eq!(status(&hub, &secret("laptop")).await, 200);
    for taken in ["laptop", "default"] {
        let ran = hub.nexus(&["key", "new", taken]).await;
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains("already"), "{ran:?}");
    }
}

#[tokio::test]
async fn bad_names_levels_and_dates_are_refused() {
    let hub = Hub::start().await;
    for (args, code) in [
        (["key", "new", "Has Blank", "--level", "trusted"], 1),
        (["key", "new", "", "--level", "trusted"], 1),
        (["key", "new", "a", "--level", "root"], 2),
        (["key", "new", "a", "--expires", "yesterday"], 2),
        (["key", "new", "a", "--expires", "2020-01-01"], 2),
        (["key", "new", "a", "--allow", "run command"], 1),
    ] {
        let ran = hub.nexus(&args).await;
        assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
        assert_eq!(ran.stdout, "");
    }
    let listed: Value = serde_json::from_str(&hub.nexus(&["key", "list", "--json"]).await.ok()).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_key_the_hub_made_can_be_revoked_and_the_next_start_makes_another() {
    let mut hub = Hub::start().keyless().await;
    let first = hub.made_key();
    hub.nexus(&["key", "revoke", "default"]).await.ok();
    assert_eq!(status(&hub, &first).await, 401);
    hub.stop().await;
    let again = Hub::start().keyless().data(&hub.data).await;
    assert_ne!(again.made_key(), first);
    assert!(again.said().contains(&again.made_key()));
}

#[tokio::test]
async fn the_open_streams_of_a_revoked_key_end() {
    let hub = Hub::start().await;
    let key = made(&hub, &["robot"]).await;
    let client = hub.legacy(&key).await;
    let get = Ask::get("/mcp").key(&key).header("Mcp-Session-Id", client.session.as_ref().unwrap());
    let (head, mut stream) = hub.open(&get).await;
    assert_eq!(head.status, 200);
    let mut sse = hub.sse(&key).await;
    // Another key's streams go on.
    let mut other = hub.sse(&hub.key).await;

    hub.nexus(&["key", "revoke", "robot"]).await.ok();
    assert!(stream.event().await.is_none());
    assert!(sse.stream.event().await.is_none());
    assert_eq!(other.request("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn the_open_subscription_of_a_revoked_key_ends() {
    let hub = Hub::start().await;
    let key = made(&hub, &["robot"]).await;
    let client = hub.modern(&key);
    let params = json!({ "notifications": { "toolsListChanged": true } });
    let mut listening = client.start(&client.message("subscriptions/listen", params)).await;
    listening.head().await;
    assert_eq!(listening.next().await["method"], "notifications/subscriptions/acknowledged");
    hub.nexus(&["key", "revoke", "robot"]).await.ok();
    while listening.event().await.is_some() {}
}

#[tokio::test]
async fn a_key_of_the_same_name_does_not_inherit_the_sessions_of_the_revoked_one() {
    let hub = Hub::start().await;
    let first = made(&hub, &["robot"]).await;
    let client = hub.legacy(&first).await;
    hub.nexus(&["key", "revoke", "robot"]).await.ok();
    let second = made(&hub, &["robot"]).await;
    let ask = client.ask(&client.message("tools/list", json!({}))).key(&second);
    assert_eq!(hub.ask(&ask).await.status(), 404);
}

#[tokio::test]
async fn no_key_is_called_as_the_record_calls_those_without_one() {
    let hub = Hub::start().await;
    for (name, whose) in [("local", "`nexus stdio`"), ("operator", "the operator's command line")] {
        let ran = hub.nexus(&["key", "new", name]).await;
        assert!(ran.code != Some(0) && ran.stderr.contains(whose), "{ran:?}");
    }
}
