//! `nexus repl` as a script drives it, and `nexus test-server`, which it is tried with.

use std::process::Stdio as Pipe;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Child;

use crate::support::{Hub, Program, Ran, Stdio, hostile, secret, signal, test_server, within};

/// Runs the REPL with these lines on its stdin.
async fn typed(program: Program, script: &str) -> Ran {
    let mut child = program.command().stdin(Pipe::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = within("nexus repl", async {
        // A script that fails early is not read to its end.
        let _ = stdin.write_all(script.as_bytes()).await;
        drop(stdin);
        child.wait_with_output().await.unwrap()
    })
    .await;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The code of the call that waits.
#[track_caller]
fn code_in(ran: &Ran) -> String {
    let behind = ran.stderr.split("it waits for a yes, code ").nth(1).unwrap_or_else(|| panic!("{ran:?}"));
    behind.split_whitespace().next().unwrap().to_owned()
}

async fn repl(hub: &Hub, script: &str) -> Ran {
    typed(hub.program(&["repl"]), script).await
}

/// A running `nexus test-server --http 0`, and its address.
async fn http_test_server() -> (Child, String) {
    let folder = tempfile::TempDir::new().unwrap();
    let (child, mut talk) = Program::new(&["test-server", "--http", "0"]).current_dir(folder.path()).spawn_talking();
    let said = within("the ready line", talk.wait_for(|said| said.contains("ready http://"))).await.unwrap().clone();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it leaves nothing behind");
    (child, said.trim().rsplit(' ').next().unwrap().to_owned())
}

#[tokio::test]
async fn commands_on_stdin_run_in_order_and_stdout_is_only_data() {
    let hub = Hub::start().conformance().await;
    let script = "\n# a comment\n/call echo message=5\n/call echo {\"message\": \"a b\"}\n/call echo message='c d'\n";
    let ran = repl(&hub, script).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "5\na b\nc d\n"), "{ran:?}");
}

#[tokio::test]
async fn values_are_typed_from_the_schema_and_what_does_not_fit_is_not_sent() {
    let hub = Hub::start().conformance().await;
    let ran = repl(&hub, "/call test_sleep seconds=0.01\n/json\n").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (_, raw) = ran.stdout.split_at(ran.stdout.find("{\n  \"resultType\"").unwrap());
    let raw: Value = serde_json::from_str(raw).unwrap();
    assert!(raw["structuredContent"]["seconds"].as_f64().unwrap() >= 0.01, "{raw}");
    check(&hub, "/call test_sleep seconds=soon", "`seconds` must be a number, not `soon`").await;
    check(&hub, "/call test_sleep", "`seconds` is missing").await;
    check(&hub, "/call test_sleep second=1", "did you mean `seconds`?").await;
    check(&hub, "/call test_slep seconds=1", "did you mean `test_sleep`?").await;
    let rows = hub.modern(&hub.key).call("get_audit_log", json!({ "tool": "test_sleep" })).await;
    assert_eq!(rows["structuredContent"]["rows"].as_array().unwrap().len(), 1, "{rows}");

    async fn check(hub: &Hub, line: &str, expected: &str) {
        let ran = repl(hub, line).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
        assert!(ran.stderr.contains(expected), "{line}: {ran:?}");
    }
}

#[tokio::test]
async fn the_first_failure_ends_it_and_nothing_after_it_runs() {
    let hub = Hub::start().conformance().await;
    let failures = [
        "/call read_file path=/no/such",
        "/call no_such_tool",
        "/call no_such_tool {}",
        "/no-such-command",
        "hello",
        "/call echo {",
        "/call run_command cmd=true",
        "/mcp tools nowhere",
    ];
    for failure in failures {
        let ran = repl(&hub, &format!("/call echo message=before\n{failure}\n/call echo message=after\n")).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), "before\n"), "{failure}: {ran:?}");
        assert!(ran.stderr.contains("line 2"), "{failure}: {ran:?}");
    }
    let ran = repl(&hub, "/call echo message=before\n/quit\n/call echo message=after\n").await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "before\n"), "{ran:?}");
}

#[tokio::test]
async fn a_write_waits_until_its_code_is_approved() {
    let hub = Hub::start().await;
    let path = hub.path("note");
    let call = format!("/call write_file path={} content=hi\n", path.display());
    let waits = repl(&hub, &call).await;
    assert_eq!(waits.code, Some(1), "{waits:?}");
    let code = code_in(&waits);
    assert!(!path.exists());
    let ran = repl(&hub, &format!("/approve {code}\n{call}/revoke\n")).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "hi");
}

#[tokio::test]
async fn images_and_sounds_are_saved_and_named_and_replace_nothing() {
    let hub = Hub::start().conformance().await;
    let folder = hub.path("saved");
    std::fs::create_dir(&folder).unwrap();
    let program = || hub.program(&["repl", "--save", folder.to_str().unwrap()]);
    let script = "/call test_image_content\n/call test_audio_content\n";
    let first = typed(program(), script).await.ok();
    let second = typed(program(), script).await.ok();
    for (said, number) in [(first, 1), (second, 2)] {
        let image = folder.join(format!("test_image_content-{number}.png"));
        assert!(said.contains(&format!("image/png saved as {}", image.display())), "{said}");
        assert!(std::fs::read(&image).unwrap().starts_with(b"\x89PNG"));
        assert!(folder.join(format!("test_audio_content-{number}.wav")).exists(), "{said}");
    }
}

#[tokio::test]
async fn the_record_and_the_tools_are_tables() {
    let hub = Hub::start().conformance().await;
    let ran = repl(&hub, "/call echo message=hello\n/audit tool=echo limit=5\n/tools\n/tools echo\n/help\n").await.ok();
    let audit =
        ran.lines().find(|line| line.contains("echo") && line.contains("ok")).unwrap_or_else(|| panic!("{ran}"));
    assert!(audit.contains("default") || audit.contains("conformance"), "{audit}");
    assert!(ran.lines().any(|line| line.starts_with("list_directory") || line.starts_with(" list_directory")), "{ran}");
    assert!(ran.lines().any(|line| line.contains("message") && line.contains("string") && line.contains("required")));
    assert!(ran.contains("/mcp connect NAME [--allow-all | --per-tool] [--shared | --private]"), "{ran}");
}

#[tokio::test]
async fn a_hub_elsewhere_is_reached_by_url_and_key_and_no_other_key_goes_there() {
    let hub = Hub::start().key("robot", "level: sandboxed").await;
    let url = format!("http://{}", hub.address);
    let elsewhere = tempfile::TempDir::new().unwrap();
    let program = |args: &[&str]| {
        let args: Vec<&str> = ["repl", "--url", &url].iter().chain(args).copied().collect();
        Program::new(&args).data(&elsewhere.path().join("data")).current_dir(elsewhere.path())
    };
    let ran = typed(program(&["--key", &secret("robot")]), "/call get_session_info\n").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("\"robot\""), "{ran:?}");
    let wrong = typed(program(&["--key", &secret("nobody")]), "/tools\n").await;
    assert_eq!(wrong.code, Some(1), "{wrong:?}");
    assert!(wrong.stderr.contains("does not take this key") && !wrong.stderr.contains(&secret("nobody")), "{wrong:?}");
    // The key of the data folder is for the hub of the data folder.
    let own = Hub::start().keyless().await;
    assert_eq!(repl(&own, "/call get_session_info\n").await.code, Some(0));
    let given = typed(own.program(&["repl", "--url", &url]), "/tools\n").await;
    assert_eq!(given.code, Some(1), "{given:?}");
    assert!(given.stderr.contains("wants a key"), "{given:?}");
}

#[tokio::test]
async fn upstream_servers_are_listed_connected_with_a_consent_given_beforehand_and_disconnected() {
    let servers = json!({ "calc": test_server(), "each": test_server(), "away": { "command": "/no/such" } });
    let hub = Hub::start().upstreams(&servers).await;
    hub.upstream_is("calc", "ready").await;
    hub.upstream_is("each", "ready").await;
    let listed = repl(&hub, "/mcp\n/mcp tools\n/mcp tools calc\n/mcp logs away\n").await.ok();
    let row = |name: &str| listed.lines().find(|line| line.trim_start().starts_with(name)).unwrap().to_owned();
    assert!(row("calc ").contains("ready") && row("away ").contains("waiting"), "{listed}");
    assert!(listed.contains("mcp_calc_add") && listed.contains("could not be started"), "{listed}");

    let unasked = repl(&hub, "/call mcp_calc_add a=2 b=3\n").await;
    assert_eq!((unasked.code, unasked.stdout.as_str()), (Some(1), ""), "{unasked:?}");
    let all = repl(&hub, "/mcp connect calc --allow-all\n/call mcp_calc_add a=2 b=3\n").await.ok();
    assert!(all.starts_with("calc: ready, shared, 3 tools\n") && all.ends_with("\n5\n"), "{all}");

    let each = repl(&hub, "/mcp connect each --per-tool\n/call mcp_each_add a=2 b=3\n").await;
    assert!(each.stdout.starts_with("each: ready") && !each.stdout.contains("\n5\n"), "{each:?}");
    assert_eq!(each.code, Some(1), "{each:?}");
    let code = code_in(&each);
    let once = repl(&hub, &format!("/approve {code} once\n/call mcp_each_add a=2 b=3\n")).await.ok();
    assert!(once.ends_with("5\n"), "{once}");

    let wider = "/mcp connect each --per-tool\n/mcp connect each --allow-all\n/call mcp_each_add a=2 b=3\n";
    assert!(repl(&hub, wider).await.ok().ends_with("\n5\n"), "a wider consent takes the place of a narrower one");

    let away = repl(&hub, "/mcp connect away --allow-all\n").await;
    assert_eq!(away.code, Some(1), "{away:?}");
    let unknown = repl(&hub, "/mcp connect nowhere --allow-all\n").await;
    assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(1), ""), "{unknown:?}");

    let ran = repl(&hub, "/approve\n/mcp disconnect calc\n/mcp\n").await.ok();
    let row = ran.lines().find(|line| line.trim_start().starts_with("calc ")).unwrap();
    assert!(row.contains("stopped"), "{ran}");
}

#[tokio::test]
async fn what_waits_is_told_to_a_person_in_words_for_people() {
    let script = "/call write_file path=/nowhere/x content=hi\n";
    let here = repl(&Hub::start().await, script).await;
    let code = code_in(&here);
    assert!(here.stderr.contains("write_file on local: write"), "{here:?}");
    assert!(here.stderr.contains(&format!("/approve {code} allows it once")), "{here:?}");
    let hub = Hub::start().yaml("approval: { mode: operator }").await;
    let there = repl(&hub, script).await;
    let code = code_in(&there);
    assert!(there.stderr.contains(&format!("`nexus approve {code}` at the hub's command line")), "{there:?}");
    assert!(!there.stderr.contains("/approve"), "{there:?}");
    for told in [here.stderr, there.stderr] {
        assert!(!told.contains("Tell the operator") && !told.contains("approve_writes"), "{told}");
    }
}

#[tokio::test]
async fn a_person_at_a_terminal_answers_an_old_server_and_widens_a_consent() {
    let servers = json!({ "old": hostile("good"), "calc": test_server() });
    let hub = Hub::start().upstreams(&servers).await;
    hub.upstreams_are_ready(&servers).await;
    let script = [
        ("nexus> ", Some("/call mcp_old_ask message=whose")),
        ("3) No", Some("1")),
        ("[MCP:old] whose", None),
        ("text", Some("Ada")),
        (r#"heard {"action": "accept", "content": {"name": "Ada"}}"#, None),
        ("nexus> ", Some("/call mcp_old_slow steps=1000 each_ms=50")),
        ("step 2", Some("^C")),
        ("cancelled", None),
        ("nexus> ", Some("/mcp connect calc --per-tool")),
        ("nexus> ", Some("/call mcp_calc_add a=1 b=1")),
        ("3) No", Some("3")),
        ("nexus> ", Some("/mcp connect calc --allow-all")),
        ("nexus> ", Some("/call mcp_calc_add a=2 b=3")),
        ("5\r", None),
        ("nexus> ", Some("/quit")),
    ];
    let sat = hub.program(&["repl"]).at_a_terminal(&script).await;
    assert_eq!(sat.code, Some(0), "{}", sat.stdout);
}

#[tokio::test]
async fn a_call_from_a_terminal_asks_there_whatever_has_to_be_asked() {
    let servers = json!({ "old": hostile("good") });
    let hub = Hub::start().upstreams(&servers).await;
    hub.upstreams_are_ready(&servers).await;
    let script = [("3) No", Some("1")), ("[MCP:old] whose", None), ("text", Some("Ada")), (r#""name": "Ada""#, None)];
    let sat = hub.program(&["call", "mcp_old_ask", r#"{"message":"whose"}"#]).at_a_terminal(&script).await;
    assert_eq!(sat.code, Some(0), "{}", sat.stdout);
}

#[tokio::test]
async fn a_tool_that_is_held_back_is_told_to_be_so() {
    let servers = json!({ "h": hostile("changing") });
    let hub = Hub::start().robot().upstreams(&servers).await;
    hub.upstreams_are_ready(&servers).await;
    hub.robot().call("mcp_h_change", json!({})).await;
    hub.upstream_reaches("h", |now| now["held"].as_array().map_or(0, Vec::len) == 2).await;
    for call in ["/call mcp_h_late", "/call mcp_h_late {}", "/tools mcp_h_late"] {
        let ran = repl(&hub, call).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
        assert!(ran.stderr.contains("`mcp_h_late` is held back"), "{ran:?}");
        assert!(ran.stderr.contains("/mcp tools h") && ran.stderr.contains("nexus mcp allow h late"), "{ran:?}");
    }
    let rest = repl(&hub, "/mcp tools h\n").await.ok();
    assert!(rest.contains("endpoint") && rest.contains("mcp_h_late"), "{rest}");
}

#[tokio::test]
async fn a_person_goes_on_at_a_hub_that_speaks_only_the_new_era() {
    let hub = Hub::start().yaml("server: { protocol: modern }").await;
    let path = hub.path("note");
    let call = format!("/call write_file path={} content=hi", path.display());
    let script = [("nexus> ", Some(call.as_str())), ("3) No", Some("1")), ("nexus> ", Some("/quit"))];
    let sat = hub.program(&["repl"]).at_a_terminal(&script).await;
    assert_eq!((sat.code, std::fs::read_to_string(&path).ok().as_deref()), (Some(0), Some("hi")), "{}", sat.stdout);
}

#[tokio::test]
async fn the_test_server_adds_in_both_eras_on_stdio() {
    let program = Program::new(&["test-server"]);
    for mut door in [Stdio::legacy(&program).await, Stdio::modern(&program)] {
        let listed = door.request("tools/list", json!({})).await;
        let names: Vec<&str> =
            listed["result"]["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
        assert_eq!(names, ["add", "echo", "get_time"]);
        check(&mut door, "add", json!({ "a": 2, "b": 3 }), "5").await;
        check(&mut door, "add", json!({ "a": 0.5, "b": 3 }), "3.5").await;
        check(&mut door, "echo", json!({ "message": "password=hunter2" }), "password=hunter2").await;
        let time = door.call("get_time", json!({})).await;
        assert!(time["content"][0]["text"].as_str().unwrap().ends_with('Z'), "{time}");
        assert_eq!(door.call("add", json!({ "a": "2", "b": 3 })).await["isError"], true);
        assert_eq!(door.end().await.1, Some(0));
    }

    async fn check(door: &mut Stdio, tool: &str, arguments: Value, expected: &str) {
        let result = door.call(tool, arguments).await;
        assert_eq!((&result["content"][0]["text"], &result["isError"]), (&json!(expected), &json!(false)), "{result}");
    }
}

#[tokio::test]
async fn the_test_server_serves_http_without_a_key_and_ends_on_a_signal() {
    let (mut server, url) = http_test_server().await;
    let folder = tempfile::TempDir::new().unwrap();
    let program = Program::new(&["repl", "--url", &url]).data(&folder.path().join("data")).current_dir(folder.path());
    let ran = typed(program, "/call add a=2 b=3\n/call echo message=hi\n/tools\n").await;
    assert!(ran.stdout.starts_with("5\nhi\n"), "{ran:?}");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let program = Program::new(&["repl", "--url", &url, "--key", "whatever"]).data(&folder.path().join("data"));
    let ran = typed(program.current_dir(folder.path()), "/call add a=2 b=3\n").await;
    assert_eq!(ran.ok(), "5\n", "a key that it did not ask for is no reason to refuse");
    signal(server.id().unwrap(), rustix::process::Signal::TERM);
    assert!(within("the end of the test server", server.wait()).await.unwrap().success());
}
