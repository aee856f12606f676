//! The first tools, from end to end: a few ways through each; their crate tests them in depth.

use serde_json::{Value, json};

use crate::support::{Client, Hub, secret, write};

async fn robot() -> Hub {
    Hub::start().key("robot", "level: yolo").await
}

async fn run(client: &Client, command: &str) -> Value {
    client.does("run_command", json!({ "cmd": command })).await
}

#[tokio::test]
async fn a_command_tells_exit_code_stdout_and_stderr_apart() {
    let hub = robot().await;
    for client in hub.both(&secret("robot")).await {
        let ran = run(&client, "echo out; echo err >&2; exit 3").await;
        assert_eq!((&ran["exit_code"], &ran["stdout"], &ran["stderr"]), (&json!(3), &json!("out\n"), &json!("err\n")));
        assert_eq!(ran["timed_out"], false);
    }
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed() {
    let hub = robot().await;
    let client = hub.modern(&secret("robot"));
    let ran = client.does("run_command", json!({ "cmd": "echo begun; sleep 600", "timeout": 1 })).await;
    assert_eq!((&ran["timed_out"], &ran["stdout"]), (&json!(true), &json!("begun\n")), "{ran}");
}

#[tokio::test]
async fn a_running_command_tells_how_it_is_doing() {
    let hub = robot().await;
    for client in hub.both(&secret("robot")).await {
        let params = json!({ "name": "run_command", "arguments": { "cmd": "echo first; sleep 1; echo second" }, "_meta": { "progressToken": "p" } });
        let answer = client.send("tools/call", params).await;
        let (last, reports) = answer.messages.split_last().unwrap();
        assert_eq!(last["result"]["structuredContent"]["exit_code"], 0, "{last}");
        let heard = reports.iter().any(|report| report["params"]["message"].as_str().unwrap().contains("first"));
        assert!(heard, "{reports:?}");
    }
}

#[tokio::test]
async fn long_output_is_cut_in_the_middle_and_the_rest_can_be_read() {
    let hub = Hub::start().key("robot", "level: yolo").yaml("shell: { output_cap: 1000 }").await;
    let client = hub.legacy(&secret("robot")).await;
    let ran = run(&client, "seq 1 1000").await;
    let cut = &ran["stdout_cut"];
    let shown = ran["stdout"].as_str().unwrap();
    assert!(shown.starts_with("1\n2\n") && shown.ends_with("999\n1000\n"), "{shown}");
    assert!(shown.contains("characters left out"), "{shown}");

    let mut rest = String::new();
    let mut cursor = cut["cursor"].clone();
    while !cursor.is_null() {
        let piece = client.does("read_output", json!({ "cursor": cursor })).await;
        rest.push_str(piece["output"].as_str().unwrap());
        cursor = piece["next_cursor"].clone();
    }
    assert_eq!(rest.chars().count() as u64, cut["left_out"].as_u64().unwrap());
    let (head, tail) = (shown.split("\n…").next().unwrap(), shown.rsplit("…\n").next().unwrap());
    let whole: String = (1..=1000).map(|n| format!("{n}\n")).collect();
    assert_eq!(format!("{head}{rest}{tail}"), whole);

    // A cursor is good for the session that ran the command.
    let other = hub.legacy(&secret("robot")).await;
    let refused = other.call("read_output", json!({ "cursor": cut["cursor"] })).await;
    assert_eq!(refused["isError"], true);
}

#[tokio::test]
async fn the_hubs_own_files_are_not_shown() {
    let hub = Hub::start().keyless().await;
    let key = hub.made_key();
    let client = hub.modern(&key);
    for name in ["key", "nexus.db", "hub.lock"] {
        let result = client.call("read_file", json!({ "path": hub.data.join(name) })).await;
        assert_eq!(result["isError"], true, "{name}: {result}");
        assert!(!result.to_string().contains(&key), "{name}");
    }
    let link = hub.path("innocent");
    std::os::unix::fs::symlink(hub.data.join("key"), &link).unwrap();
    assert_eq!(client.call("read_file", json!({ "path": link })).await["isError"], true);
}

#[tokio::test]
async fn known_secrets_and_those_the_operator_names_are_not_shown() {
    let hub = Hub::start().yaml("shell: { secret_paths: ['*.secret'] }").await;
    write(&hub.path("my.secret"), "hush");
    write(&hub.path(".env"), "TOKEN=hush");
    let client = hub.modern(&hub.key);
    let own = hub.path("my.secret");
    let env = hub.path(".env");
    for path in ["/etc/shadow", "/proc/self/environ", own.to_str().unwrap(), env.to_str().unwrap()] {
        let result = client.call("read_file", json!({ "path": path })).await;
        assert_eq!(result["structuredContent"]["error"]["kind"], "refused", "{path}: {result}");
    }
}

#[tokio::test]
async fn a_file_is_read_by_lines_and_a_folder_listed() {
    let hub = Hub::start().await;
    write(&hub.path("lines"), &(1..=10).map(|n| format!("line {n}\n")).collect::<String>());
    let client = hub.modern(&hub.key);
    let read = client.does("read_file", json!({ "path": hub.path("lines"), "offset": 3, "limit": 2 })).await;
    assert_eq!((&read["content"], &read["next_offset"]), (&json!("line 3\nline 4\n"), &json!(5)), "{read}");
    let listed = client.does("list_directory", json!({ "path": hub.folder.path() })).await;
    assert!(listed.to_string().contains("\"lines\""), "{listed}");
}

#[tokio::test]
async fn a_file_is_written_whole_and_the_difference_told() {
    let hub = robot().await;
    let client = hub.modern(&secret("robot"));
    let path = hub.path("note");
    write(&path, "one\ntwo\n");
    let wrote = client.does("write_file", json!({ "path": path, "content": "one\n2\n" })).await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\n2\n");
    let told = wrote.to_string();
    assert!(told.contains("-two") && told.contains("+2"), "{told}");
}

#[tokio::test]
async fn terminal_escapes_and_bidi_controls_do_not_reach_the_model() {
    let hub = robot().await;
    let client = hub.modern(&secret("robot"));
    let ran = run(&client, r"printf '\033[31mred\033[0m \342\200\256live\033]0;title\007\n'").await;
    assert_eq!(ran["stdout"], "red live\n");
    write(&hub.path("evil"), "a\u{1b}[2Jb\u{202e}c\n");
    let read = client.call("read_file", json!({ "path": hub.path("evil") })).await.to_string();
    assert!(!read.contains("\\u001b") && !read.contains('\u{202e}'), "{read}");
}

#[tokio::test]
async fn the_hubs_secrets_are_neither_in_a_commands_environment_nor_in_get_env() {
    let hub = Hub::start()
        .key("robot", "level: yolo")
        .env("GIT_TOKEN", "hush-git")
        .env("LOKI_PASSWORD", "hush-loki")
        .env("SOMEONES_SECRET", "hush-other")
        .env("LANG", "C.UTF-8")
        .await;
    let client = hub.modern(&secret("robot"));
    let ran = run(&client, "env").await;
    let printed = ran["stdout"].as_str().unwrap();
    assert!(printed.contains("PATH="), "{printed}");
    assert!(!printed.contains("hush") && !printed.contains(&hub.key), "{printed}");

    let env = client.does("get_env", json!({})).await;
    assert_eq!(env["values"]["LANG"], "C.UTF-8");
    assert!(env["names"].as_array().unwrap().contains(&json!("GIT_TOKEN")));
    assert!(!env.to_string().contains("hush") && !env.to_string().contains(&hub.key), "{env}");
    let one = client.call("get_env", json!({ "key": "GIT_TOKEN" })).await;
    assert_eq!(one["isError"], true);
    assert!(!one.to_string().contains("hush"));
}

#[tokio::test]
async fn the_configured_shell_and_an_unknown_node_are_heeded() {
    let hub = Hub::start().key("robot", "level: yolo").yaml("shell: { program: /bin/bash }").await;
    let client = hub.modern(&secret("robot"));
    assert_eq!(run(&client, "echo ${BASH_VERSION:+bash}").await["stdout"], "bash\n");
    let refused = client.call("run_command", json!({ "cmd": "true", "node": "mars" })).await;
    assert_eq!(refused["isError"], true);
    assert!(refused["content"][0]["text"].as_str().unwrap().contains("mars"), "{refused}");
}
