//! Secrets stay inside: the hub's own wherever they turn up, others where they can be told.

use serde_json::{Value, json};

use crate::support::{Client, Hub, secret, write};

/// Every variable with a secret in it that a hub may be given, and one value for each.
const VARIABLES: &[&str] = &[
    "LOKI_PASSWORD",
    "GIT_TOKEN",
    "CLOUDFLARE_API_TOKEN",
    "NTFY_TOKEN",
    "DOCKERHUB_TOKEN",
    "TELEGRAM_BOT_TOKEN",
    "CC_LINK_TOKEN",
    "NEXUS_AGENT_KEY",
];

/// Nothing about it looks like a secret.
fn value(variable: &str) -> String {
    format!(
        "plain-{}-4711&more",
        variable.to_lowercase().replace('_', "-").replace("token", "t0ken").replace("password", "pa55word")
    )
}

async fn run(client: &Client, command: &str) -> Value {
    client.does("run_command", json!({ "cmd": command })).await
}

/// All that the store has on disk.
fn stored(hub: &Hub) -> String {
    let files = ["nexus.db", "nexus.db-wal"].map(|name| std::fs::read(hub.data.join(name)).unwrap_or_default());
    files.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
}

#[tokio::test]
async fn no_secret_of_the_environment_gets_out_by_any_way() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut setup = Hub::start().key("robot", "level: yolo").env("NEXUS_LOG", "trace");
    for (i, variable) in VARIABLES.iter().enumerate() {
        let file = folder.path().join(variable);
        write(&file, &format!("{}\n", value(variable)));
        setup = match i % 2 {
            0 => setup.env(variable, &value(variable)),
            _ => setup.env(&format!("{variable}_FILE"), file.to_str().unwrap()),
        };
    }
    let mut hub = setup.await;
    let robot = hub.modern(&secret("robot"));
    let all: Vec<String> = VARIABLES.iter().map(|variable| value(variable)).chain([hub.key.clone()]).collect();
    let mut shown = String::new();
    for secret in &all {
        let quoted = format!("'{secret}'");
        shown += &run(&robot, &format!("echo {quoted}; echo {quoted} >&2")).await.to_string();
        shown += &run(&robot, &format!("printf %s {quoted} | base64")).await.to_string();
        shown += &run(&robot, &format!("printf 'me:%s' {quoted} | base64 -w0 | tr / _")).await.to_string();
        let file = hub.path("innocent.txt");
        write(&file, &format!("one\nand {secret} in the middle\n"));
        shown += &robot.does("read_file", json!({ "path": file })).await.to_string();
        shown += &robot.call("read_file", json!({ "path": format!("/nowhere/{secret}") })).await.to_string();
        shown += &robot.call("read_file", json!({ "path": "/x", "offset": secret })).await.to_string();
        shown += &robot.does("write_file", json!({ "path": file, "content": "two\n" })).await.to_string();
        robot.send("tools/call", json!({ "name": secret, "arguments": {} })).await;
        let long = format!("yes | head -c 60000; echo {quoted}; yes | head -c 60000");
        let cut = run(&robot, &long).await;
        let rest = robot.does("read_output", json!({ "cursor": cut["stdout_cut"]["cursor"] })).await;
        shown += &format!("{cut}{rest}").replace("y\\n", "");
    }
    assert!(shown.matches("[redacted]").count() >= 8 * all.len(), "{shown}");
    hub.stop().await;
    let (stored, said) = (stored(&hub), hub.said());
    for secret in &all {
        for spelling in [secret.clone(), base64(secret)[..16].to_owned(), secret.replace('&', "%26")] {
            assert!(!shown.contains(&spelling), "{spelling} in {shown}");
            assert!(!stored.contains(&spelling), "{spelling} is in the store");
            assert!(!said.contains(&spelling), "{spelling} in {said}");
        }
    }
}

fn base64(text: &str) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: Vec<u8> = text.bytes().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let six = |six: &[u8]| six.iter().fold(0, |number, bit| number << 1 | usize::from(*bit)) << (6 - six.len());
    bits.chunks(6).map(|bits| char::from(ALPHABET[six(bits)])).collect()
}

#[tokio::test]
async fn keys_that_the_hub_makes_are_known_to_it_at_once() {
    let hub = Hub::start().keyless().key("robot", "level: yolo").await;
    let robot = hub.modern(&secret("robot"));
    let made = hub.nexus(&["key", "new", "later"]).await.ok();
    let later = made.split_whitespace().find(|word| word.starts_with("nxk_")).unwrap().to_owned();
    let mut keys = vec![later];
    keys.extend(hub.data.join("key").exists().then(|| hub.made_key()));
    for key in keys {
        let said = run(&robot, &format!("printf %s {key} | base64 -w0; echo; echo '({key})'")).await;
        assert!(!said.to_string().contains(&base64(&key)[..40]), "{said}");
        assert!(said["stdout"].as_str().unwrap().starts_with("[redacted]"), "{said}");
    }
}

#[tokio::test]
async fn a_secret_that_is_too_short_to_be_known_is_told_without_its_value() {
    let hub = Hub::start().env("NTFY_TOKEN", "q7q7").await;
    let said = hub.says("NTFY_TOKEN is too short").await;
    assert!(!said.contains("q7q7"), "{said}");
}

#[tokio::test]
async fn what_looks_like_a_secret_is_hidden_from_the_model() {
    let hub = Hub::start().key("robot", "level: yolo").await;
    let robot = hub.modern(&secret("robot"));
    let file = hub.path("compose.yaml");
    let content = "db:\n  password: hunter2\n  image: postgres\nenv:\n  - name: X_TOKEN\n    value: hunter2\n";
    write(&file, content);
    let read = robot.call("read_file", json!({ "path": file })).await;
    assert!(!read.to_string().contains("hunter2"), "{read}");
    let told = read["structuredContent"]["content"].as_str().unwrap();
    assert_eq!(told, content.replace("hunter2", "[redacted]"));
    assert_eq!(
        serde_json::from_str::<Value>(read["content"][0]["text"].as_str().unwrap()).unwrap(),
        read["structuredContent"]
    );

    let said =
        run(&robot, "printf '%s\\n' '[{\"Env\":[\"DB_PASSWORD=correct horse\",\"A=b\"]}]' max_tokens:\\ 5").await;
    assert_eq!(said["stdout"], "[{\"Env\":[\"DB_PASSWORD=[redacted]\",\"A=b\"]}]\nmax_tokens: 5\n");

    // And what was read is not written back over the secrets.
    let back = robot.call("write_file", json!({ "path": file, "content": told })).await;
    assert_eq!(back["isError"], true, "{back}");
    assert!(back.to_string().contains("would destroy the secret"), "{back}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), content);
}

#[tokio::test]
async fn the_operator_can_switch_it_off_for_a_tool_and_the_record_says_so() {
    let yaml = "audit: { unredacted_tools: [run_*] }";
    let hub = Hub::start().yaml(yaml).key("robot", "level: yolo").env("GIT_TOKEN", &value("GIT_TOKEN")).await;
    hub.says("not redacted: run_*").await;
    let robot = hub.modern(&secret("robot"));
    let said = run(&robot, &format!("echo password=hunter2 '{}'", value("GIT_TOKEN"))).await;
    assert_eq!(said["stdout"], "password=hunter2 [redacted]\n");
    write(&hub.path("x"), "password=hunter2\n");
    assert_eq!(robot.does("read_file", json!({ "path": hub.path("x") })).await["content"], "password=[redacted]\n");

    let row = hub.audit_has("call run_command allowed ok").await;
    assert_eq!(row.detail.as_deref(), Some("output not redacted"));
    assert!(!row.arguments.unwrap().contains("hunter2"));
    assert_eq!(hub.audit_has("call read_file allowed ok").await.detail, None);
    let rows = hub.audit().await;
    let told: Vec<_> = rows.iter().filter(|row| row.event == "unredacted").collect();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].detail.as_deref(), Some("run_*"));
}

#[tokio::test]
async fn a_reply_of_another_kind_is_looked_into_too() {
    let hub = Hub::start().conformance().env("GIT_TOKEN", &value("GIT_TOKEN")).await;
    let anyone = hub.modern("");
    let said = anyone.call("echo", json!({ "message": format!("token=x {}", value("GIT_TOKEN")) })).await;
    assert_eq!(said["content"][0]["text"], "token=[redacted] [redacted]");
    assert_eq!(said["structuredContent"]["message"], "token=[redacted] [redacted]");
}
