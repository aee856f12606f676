//! Bad input through the pipe and through HTTP+SSE: an error, and the next message works.

use serde_json::{Value, json};

use crate::support::{Hub, Program, Sse, Stdio};

const BAD: &[(&str, i64)] = &[
    ("{", -32700),
    ("nonsense", -32700),
    ("{\"jsonrpc\":\"2.0\",\"id\":1,", -32700),
    (r#"{"jsonrpc":"1.0","id":901,"method":"ping"}"#, -32600),
    (r#"{"id":902,"method":"ping"}"#, -32600),
    (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
    (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600),
    (r#""text""#, -32600),
    ("[]", -32600),
    (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
    (r#"{"jsonrpc":"2.0","id":903,"method":"ping","params":[]}"#, -32602),
    (r#"{"jsonrpc":"2.0","id":904,"method":"no/such"}"#, -32601),
    (r#"{"jsonrpc":"2.0","id":905,"method":"tools/call","params":{"name":"no_such_tool"}}"#, -32602),
    (r#"{"jsonrpc":"2.0","id":906,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#, -32600),
];

fn alone(folder: &tempfile::TempDir) -> Program {
    Program::new(&["stdio"]).data(&folder.path().join("data")).current_dir(folder.path())
}

fn id_of(text: &str) -> Value {
    let message: Value = serde_json::from_str(text).unwrap_or_default();
    match &message["id"] {
        Value::Number(id) => id.clone().into(),
        _ => Value::Null,
    }
}

#[tokio::test]
async fn garbage_on_stdin_is_answered_and_the_next_request_works() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut door = Stdio::legacy(&alone(&folder)).await;
    for (text, code) in BAD {
        door.send_line(text.as_bytes()).await;
        let error = door.next().await.unwrap();
        assert_eq!(error["error"]["code"], *code, "{text}: {error}");
        assert_eq!(error["id"], id_of(text), "{text}: {error}");
        assert_eq!(door.request("ping", json!({})).await["result"], json!({}), "{text}");
    }
    door.send_line(b"\xff\xfe\x00\x80").await;
    assert_eq!(door.next().await.unwrap()["error"]["code"], -32700);
    // Empty lines and strange notifications say nothing.
    door.send_line(b"").await;
    door.send_line(b"  \r").await;
    door.send(&json!({ "jsonrpc": "2.0", "method": "notifications/no_such" })).await;
    door.send(&json!({ "jsonrpc": "2.0", "id": 1, "result": {} })).await;
    assert_eq!(door.request("ping", json!({})).await["result"], json!({}));
    assert_eq!(door.end().await, (vec![], Some(0)));
}

#[tokio::test]
async fn a_line_that_is_too_long_is_refused_and_the_next_one_works() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut door = Stdio::legacy(&alone(&folder)).await;
    for _ in 0..2 {
        door.send_line(&vec![b'x'; 5 << 20]).await;
        let error = door.next().await.unwrap();
        assert_eq!((&error["error"]["code"], &error["id"]), (&json!(-32600), &Value::Null), "{error}");
        assert_eq!(door.request("ping", json!({})).await["result"], json!({}));
    }
    assert_eq!(door.end().await.1, Some(0));
}

#[tokio::test]
async fn nothing_works_before_initialize_and_the_door_stays_open() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut door = Stdio::start(&alone(&folder));
    door.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    assert_eq!(door.request("tools/list", json!({})).await["error"]["code"], -32600);
    assert_eq!(door.request("ping", json!({})).await["result"], json!({}));
    let hello = door.request("initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {} })).await;
    assert_eq!(hello["result"]["protocolVersion"], "2025-11-25");
    assert!(door.request("tools/list", json!({})).await["result"].is_object());
    door.end().await;
}

#[tokio::test]
async fn a_modern_request_on_the_pipe_must_be_whole() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut door = Stdio::start(&alone(&folder));
    let meta = |version: &str| json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": version } });
    let refused = door.request("tools/list", meta("2026-07-28")).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let refused = door.request("tools/list", meta("2027-01-01")).await;
    assert_eq!(refused["error"]["code"], -32022, "{refused}");
    assert_eq!(refused["error"]["data"]["requested"], "2027-01-01");
    door.end().await;
}

#[tokio::test]
async fn bad_arguments_through_the_pipe_are_a_result_that_names_the_field() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut door = Stdio::legacy(&alone(&folder)).await;
    let answer = door.request("tools/call", json!({ "name": "read_file", "arguments": { "path": 7 } })).await;
    assert_eq!(answer["result"]["isError"], true);
    assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("`path`"), "{answer}");
    door.end().await;
}

#[tokio::test]
async fn garbage_posted_to_a_stream_is_answered_and_the_next_message_works() {
    let hub = Hub::start().await;
    let mut sse = hub.sse(&hub.key).await;
    for (text, code) in BAD {
        // 2024-11-05 has batches.
        if text.starts_with("[{") {
            continue;
        }
        let error = answer_to(&mut sse, text).await;
        assert_eq!(error["error"]["code"], *code, "{text}: {error}");
        assert_eq!(error["id"], id_of(text), "{text}: {error}");
        assert_eq!(sse.request("ping", json!({})).await["result"], json!({}), "{text}");
    }
    let bad = sse.request("tools/call", json!({ "name": "read_file", "arguments": { "path": 7 } })).await;
    assert_eq!(bad["result"]["isError"], true, "{bad}");
}

/// The hub may say it at once, or down the stream.
async fn answer_to(sse: &mut Sse, text: &str) -> Value {
    let response = sse.post_text(text).await;
    match response.status() {
        202 => sse.stream.next().await,
        _ => response.json(),
    }
}

#[tokio::test]
async fn a_batch_posted_to_a_stream_is_answered() {
    let hub = Hub::start().await;
    let mut sse = hub.sse(&hub.key).await;
    let ping = |id: u64| json!({ "jsonrpc": "2.0", "id": id, "method": "ping" });
    sse.post(&json!([ping(501), ping(502)])).await;
    let mut ids = Vec::new();
    while ids.len() < 2 {
        match sse.stream.next().await {
            Value::Array(answers) => ids.extend(answers.iter().map(|answer| answer["id"].as_u64().unwrap())),
            answer => ids.push(answer["id"].as_u64().unwrap()),
        }
    }
    ids.sort_unstable();
    assert_eq!(ids, [501, 502]);
}

#[tokio::test]
async fn nothing_but_ping_works_on_a_stream_before_initialize() {
    let hub = Hub::start().await;
    let mut sse = hub.sse_raw(&hub.key).await;
    assert_eq!(sse.request("tools/list", json!({})).await["error"]["code"], -32600);
    assert_eq!(sse.request("ping", json!({})).await["result"], json!({}));
}
