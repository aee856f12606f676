//! The command line: what it prints where, and with which code it ends.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Hub, Program, Ran, write};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

async fn alone(args: &[&str]) -> Ran {
    let folder = tempfile::TempDir::new().unwrap();
    let program = Program::new(args).current_dir(folder.path()).env("HOME", folder.path().to_str().unwrap());
    program.run().await
}

fn is_row(line: &str, words: &str) -> bool {
    line.split_whitespace().collect::<Vec<_>>().join(" ").starts_with(words)
}

#[tokio::test]
async fn tools_are_a_table_for_people_and_json_for_programs() {
    let hub = Hub::start().await;
    let table = hub.nexus(&["tools"]).await.ok();
    for word in ["read_file", "run_command", "write", "what it does"] {
        assert!(table.contains(word), "{table}");
    }
    let listed: Value = serde_json::from_str(&hub.nexus(&["tools", "--json"]).await.ok()).unwrap();
    let asked = hub.modern(&hub.key).send("tools/list", json!({})).await;
    assert_eq!(listed, asked.result()["tools"]);
    let one = hub.nexus(&["tools", "read_file"]).await.ok();
    assert!(one.contains("Read file") && one.lines().any(|line| is_row(line, "offset integer optional")), "{one}");
    let none = hub.nexus(&["tools", "no_such_tool"]).await;
    assert_eq!((none.code, none.stdout.as_str()), (Some(1), ""), "{none:?}");
}

#[tokio::test]
async fn a_call_prints_its_reply_and_ends_with_its_success() {
    let hub = Hub::start().await;
    write(&hub.path("note"), "hello\n");
    let arguments = json!({ "path": hub.path("note") }).to_string();
    let shown = hub.nexus(&["call", "read_file", &arguments]).await.ok();
    assert!(shown.contains("hello"), "{shown}");
    let result: Value =
        serde_json::from_str(&hub.nexus(&["call", "read_file", &arguments, "--json"]).await.ok()).unwrap();
    assert_eq!(result["structuredContent"]["content"], "hello\n");

    let failed = hub.nexus(&["call", "read_file", r#"{"path":"/no/such"}"#]).await;
    assert_eq!((failed.code, failed.stdout.as_str()), (Some(1), ""));
    assert!(failed.stderr.contains("/no/such"), "{failed:?}");
    let failed = hub.nexus(&["call", "read_file", r#"{"path":"/no/such"}"#, "--json"]).await;
    assert_eq!(failed.code, Some(1));
    assert_eq!(serde_json::from_str::<Value>(&failed.stdout).unwrap()["isError"], true);

    for args in [["call", "no_such_tool", "{}"], ["call", "read_file", "{"], ["call", "read_file", "[]"]] {
        let ran = hub.nexus(&args).await;
        assert_ne!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stdout.is_empty() && !ran.stderr.is_empty(), "{ran:?}");
    }
    let waiting = hub.nexus(&["call", "run_command", r#"{"cmd":"true"}"#]).await;
    assert_eq!(waiting.code, Some(1));
    assert!(waiting.stderr.contains("it waits for a yes") && waiting.stderr.contains("`nexus approve "), "{waiting:?}");
}

#[tokio::test]
async fn tools_and_call_use_the_key_that_the_hub_made() {
    let hub = Hub::start().keyless().await;
    assert!(hub.nexus(&["tools"]).await.ok().contains("read_file"));
    let info = hub.nexus(&["call", "get_session_info"]).await.ok();
    assert!(info.contains("principal: default"), "{info}");
}

#[tokio::test]
async fn without_a_hub_the_command_line_says_so() {
    for args in [&["tools"][..], &["call", "get_env"]] {
        let ran = alone(args).await;
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains("no hub is serving"), "{ran:?}");
    }
}

#[tokio::test]
async fn help_and_version_are_data_and_wrong_use_is_two() {
    assert_eq!(alone(&["--version"]).await.ok(), format!("nexus {}\n", env!("CARGO_PKG_VERSION")));
    let help = alone(&["--help"]).await.ok();
    for command in ["serve", "stdio", "check", "tools", "call", "key", "docs", "completions"] {
        assert!(help.contains(command), "{help}");
    }
    assert!(!help.contains("conformance"));
    for args in [&["no-such-command"][..], &["--no-such-flag"], &["call"], &["completions", "cobol"], &["key"]] {
        let ran = alone(args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {ran:?}");
    }
}

#[tokio::test]
async fn completions_are_printed_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = alone(&["completions", shell]).await.ok();
        assert!(script.contains("nexus") && script.contains("stdio"), "{shell}");
    }
}

#[tokio::test]
async fn check_prints_all_faults_at_once_each_with_its_place() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("faulty.yaml");
    write(&file, "server:\n  http_port: 99999\n  log_levle: info\nkeys:\n  - { name: a, sha256: zz }\nnonsense: 1\n");
    for command in ["check", "serve", "stdio", "tools"] {
        let program = Program::new(&[command]).config(&file).data(&folder.path().join("data"));
        let ran = program.env("MCP_API_KEY", "short").current_dir(folder.path()).run().await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{command}: {ran:?}");
        let name = file.to_str().unwrap();
        for place in ["2:14", "3:3", "5:24", "6:1"] {
            assert!(ran.stderr.contains(&format!("{name}:{place}: ")), "{place}\n{}", ran.stderr);
        }
        assert!(ran.stderr.contains("environment: MCP_API_KEY"), "{}", ran.stderr);
        assert!(ran.stderr.contains("2 |   http_port: 99999"), "{}", ran.stderr);
        assert!(ran.stderr.contains("hint: ") && ran.stderr.contains("log_level"), "{}", ran.stderr);
        assert!(ran.stderr.trim_end().ends_with("5 faults; nothing was started"), "{}", ran.stderr);
        assert!(!folder.path().join("data").exists(), "nothing was started");
    }
}

#[tokio::test]
async fn check_shows_what_a_good_file_comes_to_without_its_secrets() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("good.yaml");
    write(&file, "server: { http_port: 4711 }\n");
    let program = || {
        let program = Program::new(&["check"]).config(&file).data(&folder.path().join("data"));
        program.env("MCP_API_KEY", "0123456789abcdef0123456789abcdef").current_dir(folder.path())
    };
    let shown = program().run().await;
    assert!(shown.stderr.contains("no faults"), "{shown:?}");
    assert!(shown.stdout.contains("4711") && !shown.stdout.contains("0123456789abcdef"), "{shown:?}");
    let result: Value = serde_json::from_str(&program().arg("--json").run().await.ok()).unwrap();
    assert_eq!(result["server"]["http_port"], 4711);
    let missing = Program::new(&["check", "--config", "/no/such.yaml", "--data", "/tmp/x"]).run().await;
    assert_eq!(missing.code, Some(2), "{missing:?}");
}

#[tokio::test]
async fn the_examples_in_the_repository_load() {
    for name in ["nexus.yaml", "minimal.yaml"] {
        let folder = tempfile::TempDir::new().unwrap();
        let program = Program::new(&["check"]).config(&root().join("config").join(name)).data(folder.path());
        let ran = program.env("HOME", folder.path().to_str().unwrap()).run().await;
        assert_eq!(ran.code, Some(0), "{name}: {ran:?}");
    }
    let text = std::fs::read_to_string(root().join("config/mcp.json")).unwrap();
    assert!(serde_json::from_str::<Value>(&text).unwrap().is_object());
}

#[tokio::test]
async fn a_hub_serves_with_the_example_as_its_configuration() {
    let yaml = std::fs::read_to_string(root().join("config/nexus.yaml")).unwrap();
    let hub = Hub::start().yaml(&yaml).await;
    assert!(!hub.modern(&hub.key).tools().await.is_empty());
}

#[tokio::test]
async fn the_reference_pages_are_what_the_program_says() {
    let ran = Program::new(&["docs", "--check"]).current_dir(&root()).run().await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let folder = tempfile::TempDir::new().unwrap();
    let stale = Program::new(&["docs", "--check", "pages"]).current_dir(folder.path()).run().await;
    assert_eq!(stale.code, Some(1), "{stale:?}");
    assert_eq!(Program::new(&["docs", "pages"]).current_dir(folder.path()).run().await.code, Some(0));
    assert_eq!(Program::new(&["docs", "--check", "pages"]).current_dir(folder.path()).run().await.code, Some(0));
}

#[tokio::test]
async fn nexus_alone_serves_and_finds_its_configuration_beside_it() {
    let folder = tempfile::TempDir::new().unwrap();
    write(&folder.path().join("nexus.yaml"), "server: { http_port: 0 }\n");
    let home = folder.path().to_str().unwrap();
    let program = Program::new(&[]).env("HOME", home).current_dir(folder.path());
    let (mut child, mut talk) = program.spawn_talking();
    let ready = talk.wait_for(|said| said.contains("nexus ready mcp=http://127.0.0.1:"));
    crate::support::within("the ready line", ready).await.unwrap();
    let data = folder.path().join(".local/share/nexus");
    assert!(data.join("key").exists());
    crate::support::signal(child.id().unwrap(), rustix::process::Signal::TERM);
    assert_eq!(crate::support::within("its end", child.wait()).await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_taken_port_is_told_with_the_way_out() {
    let hub = Hub::start().await;
    let port = hub.address.rsplit(':').next().unwrap().to_owned();
    let ran = Hub::start().env("MCP_PORT", &port).refused().await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("is taken by another program") && ran.stderr.contains("MCP_PORT"), "{ran:?}");
}

#[tokio::test]
async fn logs_can_be_json() {
    let folder = tempfile::TempDir::new().unwrap();
    let program = Program::new(&["serve", "--log-format", "json"]).data(&folder.path().join("data"));
    let program = program.env("MCP_PORT", "0").current_dir(folder.path());
    let (mut child, mut talk) = program.spawn_talking();
    crate::support::within("ready", talk.wait_for(|said| said.contains("nexus ready"))).await.unwrap();
    crate::support::signal(child.id().unwrap(), rustix::process::Signal::TERM);
    assert_eq!(crate::support::within("its end", child.wait()).await.unwrap().code(), Some(0));
    let said = crate::support::within("its last words", crate::support::last_words(&talk)).await;
    let logged = said.lines().filter(|line| line.starts_with('{')).map(serde_json::from_str::<Value>);
    assert!(logged.filter_map(Result::ok).any(|line| line["level"] == "INFO"), "{said}");
}
