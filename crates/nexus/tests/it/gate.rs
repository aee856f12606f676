//! The gate, from outside: which writes run, which wait, which are refused, and what is recorded of each.

use insta::assert_json_snapshot;
use serde_json::{Value, json};

use crate::support::{Client, Hub, secret};

fn write_note(hub: &Hub) -> (std::path::PathBuf, Value) {
    let path = hub.path("note");
    let arguments = json!({ "path": path, "content": "hi" });
    (path, arguments)
}

#[tokio::test]
async fn a_write_that_nobody_approved_did_not_run_and_says_what_to_do() {
    let hub = Hub::start().await;
    let (path, arguments) = write_note(&hub);
    for client in hub.both(&hub.key).await {
        let result = client.call("write_file", arguments.clone()).await;
        assert_eq!(result["isError"], true);
        let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, result["structuredContent"]);
        assert!(result["structuredContent"]["code"].as_str().unwrap().len() >= 6);
        let folder = hub.folder.path().to_str().unwrap();
        let mut shown: Value =
            serde_json::from_str(&result["structuredContent"].to_string().replace(folder, "FOLDER")).unwrap();
        assert!(shown["how"].as_str().unwrap().contains("Nothing has happened yet"));
        assert!(shown["action"]["summary"].as_str().unwrap().contains("FOLDER/note"), "{shown}");
        assert!(!path.exists());
        (shown["code"], shown["how"]) = ("[code]".into(), "[how]".into());
        shown["action"]["summary"] = "[summary]".into();
        insta::allow_duplicates! {
        assert_json_snapshot!(shown, @r#"
        {
          "status": "approval_required",
          "action": {
            "tool": "write_file",
            "node": "local",
            "summary": "[summary]",
            "arguments": {
              "path": "FOLDER/note",
              "content": "hi"
            }
          },
          "code": "[code]",
          "how": "[how]"
        }
        "#);
        }
    }
    let row = hub.audit_has("call write_file asked waiting").await;
    assert_eq!(row.access.as_deref(), Some("write"));
    assert!(!hub.audit().await.iter().any(|row| row.event == "begun"));
}

#[tokio::test]
async fn text_and_structure_of_a_waiting_write_agree_whatever_the_arguments_hold() {
    let hub = Hub::start().await;
    let hostile = json!({ "path": hub.path("note"), "content": "a\u{1b}[31mb\u{202e}c\u{0}d" });
    let result = hub.modern(&hub.key).call("write_file", hostile).await;
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(!text.contains('\u{202e}'), "{text}");
    let text: Value = serde_json::from_str(text).unwrap();
    assert_eq!(text, result["structuredContent"]);
}

#[tokio::test]
async fn a_sandboxed_key_is_refused_every_write() {
    let hub = Hub::start().key("guest", "level: sandboxed").await;
    let (path, arguments) = write_note(&hub);
    for client in hub.both(&secret("guest")).await {
        let result = client.call("write_file", arguments.clone()).await;
        assert_eq!(result["isError"], true);
        assert_eq!(result["structuredContent"]["error"]["why"], "level_too_low", "{result}");
        assert!(!path.exists());
        client.does("get_session_info", json!({})).await;
    }
    let row = hub.audit_has("call write_file refused refused").await;
    assert_eq!((row.principal.as_deref(), row.how.as_deref()), (Some("guest"), Some("level_too_low")));
}

#[tokio::test]
async fn a_yolo_key_writes_at_once_recorded_before_and_after_and_warned_of_at_start() {
    let hub = Hub::start().key("robot", "level: yolo").await;
    assert!(hub.said().contains("the key `robot` has the level yolo"), "{}", hub.said());
    let (path, arguments) = write_note(&hub);
    let done = hub.modern(&secret("robot")).does("write_file", arguments).await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "hi", "{done}");
    let rows = hub.audit_reaches(|rows| rows.iter().any(|row| row.is("call write_file allowed ok"))).await;
    let calls: Vec<_> = rows.iter().filter(|row| row.tool.is_some()).collect();
    let told: Vec<String> = calls.iter().map(|row| row.told()).collect();
    assert_eq!(told, ["begun write_file allowed", "call write_file allowed ok"]);
    assert!(calls[0].call_id.is_some() && calls[0].call_id == calls[1].call_id);
    assert_eq!(calls[1].principal.as_deref(), Some("robot"));
}

#[tokio::test]
async fn writes_that_the_owner_approved_for_good_run_and_no_others() {
    let hub = Hub::start().key("laptop", "approved: [write_file]").await;
    let client = hub.modern(&secret("laptop"));
    let (path, arguments) = write_note(&hub);
    client.does("write_file", arguments).await;
    assert!(path.exists());
    let asked = client.call("run_command", json!({ "cmd": "true" })).await;
    assert_eq!(asked["structuredContent"]["status"], "approval_required");
}

#[tokio::test]
async fn always_ask_asks_even_then_and_yolo_is_still_not_asked() {
    let hub = Hub::start()
        .key("laptop", "approved: ['*']")
        .key("robot", "level: yolo")
        .yaml("approval: { always_ask: ['write_*'] }")
        .await;
    let (path, arguments) = write_note(&hub);
    let asked = hub.modern(&secret("laptop")).call("write_file", arguments.clone()).await;
    assert_eq!(asked["structuredContent"]["status"], "approval_required");
    assert!(!path.exists());
    hub.modern(&secret("laptop")).does("run_command", json!({ "cmd": "true" })).await;
    hub.modern(&secret("robot")).does("write_file", arguments).await;
}

#[tokio::test]
async fn read_only_beats_everything_for_one_key() {
    let hub = Hub::start().key("robot", "level: yolo, read_only: true").key("free", "level: yolo").await;
    refuses_writes(&hub, &hub.modern(&secret("robot"))).await;
    hub.modern(&secret("free")).does("run_command", json!({ "cmd": "true" })).await;
}

#[tokio::test]
async fn read_only_beats_everything_for_the_whole_hub() {
    let hub = Hub::start().key("robot", "level: yolo").yaml("server: { read_only: true }").await;
    refuses_writes(&hub, &hub.modern(&secret("robot"))).await;
}

async fn refuses_writes(hub: &Hub, client: &Client) {
    let (path, arguments) = write_note(hub);
    let refused = client.call("write_file", arguments).await;
    assert_eq!(refused["structuredContent"]["error"]["why"], "read_only", "{refused}");
    assert!(!path.exists());
    let me = client.does("get_session_info", json!({})).await;
    assert_eq!(me["read_only"], true);
}

/// What the record must not hold, and how it would come in.
const SECRETS: &[(&str, &str)] = &[
    ("hunter2hunter2", "mysql --password=hunter2hunter2 -e 'select 1'"),
    ("correcthorsebattery", "PGPASSWORD=correcthorsebattery psql"),
    ("ghp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "git push https://ghp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa@x/y"),
    ("s3cretpassw0rd", "curl https://me:s3cretpassw0rd@host/"),
    ("abcdefghijklmnop1234", "curl -H 'Authorization: Bearer abcdefghijklmnop1234' host"),
];

#[tokio::test]
async fn secrets_in_arguments_do_not_reach_the_record_or_the_one_who_is_asked() {
    let hub = Hub::start().await;
    let client = hub.modern(&hub.key);
    let mut shown = String::new();
    for (_, command) in SECRETS {
        shown.push_str(&client.call("run_command", json!({ "cmd": command })).await["structuredContent"].to_string());
    }
    let asked = |rows: &[crate::support::AuditRow]| rows.iter().filter(|row| row.tool.is_some()).count();
    let rows = hub.audit_reaches(|rows| asked(rows) == SECRETS.len()).await;
    let kept = format!("{rows:?}{}", hub.said());
    let leaked: Vec<&str> = SECRETS.iter().map(|(secret, _)| *secret).filter(|secret| kept.contains(secret)).collect();
    let told: Vec<&str> = SECRETS.iter().map(|(secret, _)| *secret).filter(|secret| shown.contains(secret)).collect();
    assert!(leaked.is_empty() && told.is_empty(), "in the record: {leaked:?}; in the reply: {told:?}");
}

#[tokio::test]
async fn an_argument_with_the_name_of_a_secret_is_not_recorded() {
    let hub = Hub::start().await;
    let client = hub.modern(&hub.key);
    client.call("get_env", json!({ "token": "tok-1234", "password": "pass-1234" })).await;
    let row = hub.audit_has("call get_env refused").await;
    let kept = row.arguments.unwrap();
    assert!(!kept.contains("tok-1234") && !kept.contains("pass-1234"), "{kept}");
}

#[tokio::test]
async fn a_read_is_free_at_every_level_and_recorded() {
    let hub = Hub::start().key("guest", "level: sandboxed").key("robot", "level: yolo").await;
    for key in [secret("guest"), hub.key.clone(), secret("robot")] {
        hub.modern(&key).does("list_directory", json!({ "path": "/" })).await;
    }
    let reads =
        |rows: &[crate::support::AuditRow]| rows.iter().filter(|row| row.is("call list_directory allowed ok")).count();
    hub.audit_reaches(|rows| reads(rows) == 3).await;
}
