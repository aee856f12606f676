//! Reading it: `nexus audit` and `get_audit_log`.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use super::{loaded, mixed_load, unknown};
use crate::support::{AuditRow, Client, Hub, Program, Stdio, parsed, secret, signal, within};

async fn log(client: &Client, arguments: Value) -> Vec<Value> {
    client.does("get_audit_log", arguments).await["rows"].as_array().unwrap().clone()
}

fn texts<'a>(rows: &'a [Value], field: &str) -> Vec<&'a str> {
    rows.iter().filter_map(|row| row[field].as_str()).collect()
}

#[tokio::test]
async fn a_model_reads_the_record_newest_first_filtered_and_page_by_page() {
    let hub = loaded().await;
    mixed_load(&hub).await;
    let client = hub.legacy(&hub.key).await;
    let rows = log(&client, json!({ "limit": 200 })).await;
    let kept = hub.audit().await;
    let kept: Vec<&str> = kept.iter().rev().map(|row| row.id.as_str()).collect();
    let skipped = kept.len() - rows.len();
    assert_eq!(texts(&rows, "id"), kept[skipped..], "this call's own row came later");

    let (mut paged, mut cursor) = (Vec::new(), json!(null));
    loop {
        let mut ask = json!({ "limit": 7, "since": "1h", "outcome": "ok" });
        if cursor.is_string() {
            ask["cursor"] = cursor;
        }
        let page = client.does("get_audit_log", ask).await;
        paged.extend(page["rows"].as_array().unwrap().clone());
        cursor = page["cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    let all = hub.audit().await;
    let ok: Vec<&str> =
        all.iter().rev().filter(|row| row.outcome.as_deref() == Some("ok")).map(|row| row.id.as_str()).collect();
    assert_eq!(texts(&paged, "id"), ok[ok.len() - paged.len()..], "newest first, none twice, none left out");
    assert!(paged.len() > 7);

    let writes = log(&client, json!({ "tool": "write_file" })).await;
    assert!(!writes.is_empty() && writes.iter().all(|row| row["tool"] == "write_file"));
    hub.audit_has("call get_audit_log allowed ok").await;
    let own = log(&client, json!({ "session": "this" })).await;
    let session = client.does("get_session_info", json!({})).await["session"].as_str().unwrap().to_owned();
    assert!(own.iter().all(|row| row["session"] == session.as_str()) && !own.is_empty());
    assert_eq!(log(&client, json!({ "session": session, "tool": "nothing" })).await.len(), 0);
    let refused = log(&client, json!({ "outcome": "refused", "tool": "write_file" })).await;
    assert_eq!(refused[0]["key"], "guest");
    assert_eq!(refused[0]["arguments"]["content"], "x");
    let text =
        client.call("get_audit_log", json!({ "limit": 1 })).await["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(text.lines().count() == 2 && text.contains("cursor="), "{text}");
    hub.audit_has("call get_audit_log allowed ok").await;
}

#[tokio::test]
async fn a_bad_question_about_the_record_is_refused_with_a_reason() {
    let hub = Hub::start().await;
    let client = hub.modern(&hub.key);
    for (bad, word) in [
        (json!({ "limit": 0 }), "limit"),
        (json!({ "limit": 201 }), "limit"),
        (json!({ "since": "yesterday" }), "since"),
        (json!({ "cursor": "xyz" }), "cursor"),
        (json!({ "cursor": "-1" }), "cursor"),
        (json!({ "session": "fe" }), "session"),
        (json!({ "session": "' OR 1=1 --" }), "session"),
        (json!({ "sesion": "this" }), "sesion"),
    ] {
        let refused = client.call("get_audit_log", bad.clone()).await;
        assert_eq!(refused["isError"], true, "{bad}");
        assert!(refused["content"][0]["text"].as_str().unwrap().contains(word), "{bad}: {refused}");
    }
}

#[tokio::test]
async fn a_sandboxed_key_sees_only_its_own_session() {
    let hub = Hub::start().key("guest", "level: sandboxed").await;
    let other = hub.legacy(&hub.key).await;
    other.does("list_directory", json!({ "path": "/" })).await;
    let theirs = other.does("get_session_info", json!({})).await["session"].clone();
    hub.audit_has("call get_session_info allowed ok").await;
    for client in hub.both(&secret("guest")).await {
        client.does("list_directory", json!({ "path": "/" })).await;
        let own = client.does("get_session_info", json!({})).await["session"].clone();
        let told = |rows: &[AuditRow]| {
            rows.iter().any(|row| row.session.as_deref() == own.as_str() && row.is("call get_session_info allowed ok"))
        };
        hub.audit_reaches(told).await;
        for ask in
            [json!({}), json!({ "session": "this" }), json!({ "tool": "list_directory" }), json!({ "session": own })]
        {
            let rows = log(&client, ask).await;
            assert!(!rows.is_empty() && rows.iter().all(|row| row["session"] == own), "{rows:#?}");
        }
        let refused = client.call("get_audit_log", json!({ "session": theirs })).await;
        assert!(refused["content"][0]["text"].as_str().unwrap().contains("own session"), "{refused}");
    }
}

#[tokio::test]
async fn a_page_of_large_rows_ends_early() {
    let hub = Hub::start().await;
    let client = hub.modern(&hub.key);
    for _ in 0..20 {
        let large: Vec<String> = (0..6).map(|n| format!("{n}{}", "x ".repeat(900))).collect();
        client.call("list_directory", json!({ "path": "/", "more": large })).await;
    }
    let refused = |rows: &[AuditRow]| rows.iter().filter(|row| row.is("call list_directory refused")).count();
    hub.audit_reaches(|rows| refused(rows) == 20).await;
    let page = client.does("get_audit_log", json!({ "tool": "list_directory" })).await;
    let count = page["rows"].as_array().unwrap().len();
    assert!((1..20).contains(&count) && page["cursor"].is_string(), "{count}");
    assert!(page.to_string().len() < 130_000);
}

#[tokio::test]
async fn tail_shows_one_clean_line_a_row_and_every_filter_counts() {
    let mut hub = loaded().await;
    mixed_load(&hub).await;
    hub.legacy(&secret("robot")).await.call("run_command", json!({ "cmd": "echo 'a\u{1b}[31m\nb' # \u{202e}" })).await;
    hub.stop().await;
    let all = hub.audit().await;
    let shown = hub.nexus(&["audit", "tail", "-n", "1000"]).await.ok();
    assert_eq!(shown.lines().count(), all.len());
    assert!(!shown.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'), "{shown}");
    for words in ["hub_started", "key_refused", "guest", "write_file", "[refused: level_too_low]", "local", " ms"] {
        assert!(shown.contains(words), "no {words} in {shown}");
    }
    assert_eq!(hub.nexus(&["audit", "tail"]).await.ok().lines().count(), 20);

    let session = all.iter().rev().find_map(|row| row.session.clone()).unwrap();
    type Fits<'a> = &'a dyn Fn(&AuditRow) -> bool;
    let of_session: Fits<'_> = &|row| row.session.as_ref() == Some(&session);
    let cases: [([&str; 2], Fits<'_>); 7] = [
        (["--session", session.as_str()], of_session),
        (["--session", &session[..23]], of_session),
        (["--tool", "run_command"], &|row| row.tool.as_deref() == Some("run_command")),
        (["--outcome", "refused"], &|row| row.outcome.as_deref() == Some("refused")),
        (["--outcome", "key_refused"], &|row| row.event == "key_refused"),
        (["--since", "1h"], &|_| true),
        (["--since", "2090-01-01"], &|_| false),
    ];
    for (args, fits) in cases {
        let json = hub.nexus(&[&["audit", "tail", "-n", "1000", "--json"], &args[..]].concat()).await.ok();
        let expected: Vec<&str> = all.iter().filter(|row| fits(row)).map(|row| row.id.as_str()).collect();
        let shown = parsed(&json);
        assert_eq!(shown.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), expected, "{args:?}");
    }
    for (args, code) in [(["--since", "soon"], 2), (["--session", "nobody"], 1)] {
        assert_eq!(hub.nexus(&["audit", "tail", args[0], args[1]]).await.code, Some(code), "{args:?}");
    }
}

struct Follow {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Follow {
    fn start(program: &Program) -> Self {
        let mut child = program.command().spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    async fn reads(&mut self, rows: usize) -> Vec<String> {
        let mut read = Vec::new();
        while read.len() < rows {
            read.push(within("a line of tail", self.lines.next_line()).await.unwrap().expect("it goes on"));
        }
        read
    }
}

#[tokio::test]
async fn following_shows_every_row_of_every_process_once_and_ends_as_it_is_told() {
    let hub = Hub::start().await;
    hub.audit_reaches(|rows| rows.iter().any(|row| row.event == "hub_started")).await;
    let mut follow =
        Follow::start(&hub.program(&["audit", "tail", "--follow", "-n", "1", "--json", "--tool", "list_directory"]));
    let mut quiet = Follow::start(&hub.program(&["audit", "tail", "-f"]));
    quiet.reads(1).await;
    let client = hub.modern(&hub.key);
    let mut pipes = Stdio::legacy(&hub.program(&["stdio"])).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        for _ in 0..10 {
            client.does("list_directory", json!({ "path": "/" })).await;
            let more = json!({ "name": "list_directory", "arguments": { "path": "/" } });
            pipes.request("tools/call", more).await;
        }
        seen.extend(follow.reads(20).await);
    }
    let shown = parsed(&seen.join("\n"));
    let mut ids: Vec<&str> = shown.iter().map(|row| row.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 60);
    pipes.end().await;

    signal(follow.child.id().unwrap(), rustix::process::Signal::INT);
    let rest = within("its end", follow.lines.next_line()).await.unwrap();
    assert_eq!(rest, None, "nothing twice");
    assert_eq!(within("its end", follow.child.wait()).await.unwrap().code(), Some(0));
    // Nothing happens and nobody reads: it is noticed all the same.
    drop(quiet.lines);
    let ended = within("its end", quiet.child.wait_with_output()).await.unwrap();
    assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()), (Some(0), ""));
}

#[tokio::test]
async fn export_writes_all_rows_in_order_for_programs_and_for_spreadsheets() {
    let mut hub = loaded().await;
    mixed_load(&hub).await;
    unknown(&hub.modern(&hub.key), "=1+1").await;
    hub.stop().await;
    let all = hub.audit().await;
    let lines = parsed(&hub.nexus(&["audit", "export", "--format", "jsonl"]).await.ok());
    let ids = |rows: &[AuditRow]| rows.iter().map(|row| row.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&lines), ids(&all));

    let file = hub.path("out.csv");
    let export = ["audit", "export", "--format", "csv", "--output", file.to_str().unwrap()];
    assert_eq!(hub.nexus(&export).await.ok(), "");
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let table = table(&text);
    assert_eq!(table.len(), all.len() + 1);
    assert!(table.iter().all(|line| line.len() == 24), "{table:?}");
    assert_eq!((table[0][0].as_str(), table[0][23].as_str()), ("id", "hash"));
    assert_eq!(table.iter().skip(1).map(|line| line[0].clone()).collect::<Vec<_>>(), ids(&all));
    assert!(table.iter().flatten().all(|cell| !cell.starts_with(['=', '+', '-', '@'])), "{text}");
    assert!(table.iter().any(|line| line[11] == "'=1+1"), "{text}");
    assert_eq!(hub.nexus(&export).await.code, Some(1), "a file that is there is not replaced");
    let some = hub.nexus(&["audit", "export", "--outcome", "refused"]).await.ok();
    assert_eq!(parsed(&some).len(), all.iter().filter(|row| row.outcome.as_deref() == Some("refused")).count());
}

/// A CSV reader of our own: RFC 4180.
fn table(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut cell, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, quoted) {
            ('"', true) if rest.next_if_eq(&'"').is_some() => cell.push('"'),
            ('"', _) => quoted = !quoted,
            (',', false) => row.push(std::mem::take(&mut cell)),
            ('\r', false) => {}
            ('\n', false) => {
                row.push(std::mem::take(&mut cell));
                rows.push(std::mem::take(&mut row));
            }
            (c, _) => cell.push(c),
        }
    }
    rows
}

#[tokio::test]
async fn status_tells_of_the_record_and_of_the_running_hub() {
    let mut hub = Hub::start().yaml("audit: { keep: 30d, max_size: 5GB }").await;
    hub.modern(&hub.key).does("list_directory", json!({ "path": "/" })).await;
    hub.audit_has("call list_directory allowed ok").await;
    let told: Value = serde_json::from_str(&hub.nexus(&["audit", "status", "--json"]).await.ok()).unwrap();
    assert_eq!((&told["chains"], &told["open_chains"], &told["unended_writes"]), (&json!(1), &json!(1), &json!(0)));
    assert_eq!(told["rows"].as_u64().unwrap() as usize, hub.audit().await.len());
    assert_eq!((&told["keep"], &told["max_size"], &told["loki"]), (&json!("30d"), &json!("5GB"), &json!(null)));
    assert_eq!((&told["hub"]["ok"], &told["hub"]["lost"]), (&json!(true), &json!(0)), "{told}");
    assert!(told["oldest"].is_string() && told["newest"].is_string() && told["size_bytes"].as_i64().unwrap() > 0);
    hub.stop().await;
    let told = hub.nexus(&["audit", "status"]).await.ok();
    for words in ["1, 0 of them open", "30d, at most 5GB", "none here", "not configured"] {
        assert!(told.contains(words), "no {words} in {told}");
    }
    let nothing = Program::new(&["audit", "verify"]).data(&hub.path("nothing")).run().await;
    assert!(nothing.code == Some(1) && nothing.stderr.contains("no record"), "{nothing:?}");
    assert!(!hub.path("nothing").exists(), "looking makes nothing");
}
