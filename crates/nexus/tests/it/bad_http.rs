//! Bad input over HTTP: the error the specification names, and the next request works.

use serde_json::{Value, json};

use crate::support::{Ask, Client, Hub, rpc, secret};

const MODERN_META: &str = "io.modelcontextprotocol/protocolVersion";

/// Sends it, checks what comes back, and that the hub still answers the same client.
async fn refused(hub: &Hub, client: &Client, ask: &Ask, status: u16, code: i64) -> Value {
    let response = hub.ask(ask).await;
    assert_eq!(response.status(), status, "{ask:?}\n{response:?}");
    let error = response.json();
    assert_eq!(error["jsonrpc"], "2.0", "{error}");
    assert_eq!(error["error"]["code"], code, "{ask:?}\n{error}");
    assert!(!client.tools().await.is_empty());
    error
}

#[tokio::test]
async fn what_is_no_json_is_a_parse_error() {
    let hub = Hub::start().await;
    for client in hub.both(&hub.key).await {
        let ask = client.ask(&client.message("tools/list", json!({})));
        for text in ["{", "", "nonsense", "{\"jsonrpc\":\"2.0\",", "\u{feff}{}", "[1,", &"[".repeat(10_000)] {
            let error = refused(&hub, &client, &ask.clone().body(text), 400, -32700).await;
            assert_eq!(error["id"], Value::Null);
        }
    }
}

#[tokio::test]
async fn what_is_json_and_no_message_is_an_invalid_request() {
    let hub = Hub::start().await;
    for client in hub.both(&hub.key).await {
        let ask = client.ask(&client.message("tools/list", json!({})));
        let bad = [
            json!({ "jsonrpc": "1.0", "id": 1, "method": "tools/list" }),
            json!({ "id": 1, "method": "tools/list" }),
            json!({ "jsonrpc": "2.0", "id": null, "method": "tools/list" }),
            json!({ "jsonrpc": "2.0", "id": {}, "method": "tools/list" }),
            json!({ "jsonrpc": "2.0", "id": [1], "method": "tools/list" }),
            json!({ "jsonrpc": "2.0", "id": true, "method": "tools/list" }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": 7 }),
            json!({ "jsonrpc": "2.0", "id": 1 }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "result": {} }),
            json!("text"),
            json!(7),
            json!(null),
        ];
        for message in bad {
            refused(&hub, &client, &ask.clone().body(&message.to_string()), 400, -32600).await;
        }
        // Params are an object or nothing.
        for params in [json!([]), json!("x"), json!(1)] {
            let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params });
            refused(&hub, &client, &ask.clone().body(&message.to_string()), 400, -32602).await;
        }
    }
}

#[tokio::test]
async fn batches_that_cannot_be_are_refused() {
    let hub = Hub::start().await;
    let old = Client::initialized(&hub, &hub.key, "2025-03-26").await;
    let ask = old.ask(&json!([]));
    refused(&hub, &old, &ask, 400, -32600).await;
    refused(&hub, &old, &ask.clone().body("[1,2,3]"), 400, -32600).await;
    let many: Vec<Value> = (0..1000).map(|id| rpc(id, "ping", &json!({}))).collect();
    refused(&hub, &old, &ask.clone().body(&json!(many).to_string()), 400, -32600).await;
    let modern = hub.modern(&hub.key);
    let batch = json!([modern.message("tools/list", json!({}))]);
    let response = hub.ask(&modern.ask(&batch)).await;
    assert_eq!(response.status(), 400);
    assert!(!modern.tools().await.is_empty());
}

#[tokio::test]
async fn an_unknown_method_or_tool_is_named_and_an_unknown_notification_is_ignored() {
    let hub = Hub::start().await;
    for client in hub.both(&hub.key).await {
        let unknown = client.send("no/such", json!({})).await;
        assert_eq!(unknown.code(), -32601);
        let unknown = client.send("tools/call", json!({ "name": "no_such_tool", "arguments": {} })).await;
        assert_eq!(unknown.code(), -32602);
        assert_eq!(unknown.message()["error"]["message"], "unknown tool: no_such_tool");
        let nameless = client.send("tools/call", json!({ "arguments": {} })).await;
        assert_eq!(nameless.code(), -32602);
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/no_such" });
        assert_eq!(hub.ask(&client.ask(&note)).await.status(), 202);
        assert!(!client.tools().await.is_empty());
    }
    hub.audit_has("call no_such_tool unknown_tool").await;
}

#[tokio::test]
async fn an_unknown_method_is_a_404_only_where_that_does_not_mean_a_lost_session() {
    let hub = Hub::start().await;
    let [legacy, modern] = hub.both(&hub.key).await;
    assert_eq!(modern.send("no/such", json!({})).await.status(), 404);
    // Clients up to 2025-11-25 MUST take a 404 for a session that is gone and start anew, approvals and all.
    assert_ne!(legacy.send("no/such", json!({})).await.status(), 404);
}

#[tokio::test]
async fn bad_arguments_are_a_result_that_names_the_field() {
    let hub = Hub::start().await;
    for client in hub.both(&hub.key).await {
        for (arguments, word) in [
            (json!({ "path": 7 }), "`path`"),
            (json!({ "path": "/", "limt": 3 }), "limt"),
            (json!({}), "path"),
            (json!({ "path": "/", "offset": -1 }), "offset"),
            (json!({ "path": "/", "node": "-oProxyCommand=x" }), "node"),
            (json!([]), "arguments"),
            (json!("x"), "arguments"),
        ] {
            let result = client.call("read_file", arguments.clone()).await;
            assert_eq!(result["isError"], true, "{arguments}");
            assert_eq!(result["structuredContent"]["error"]["kind"], "refused", "{arguments}: {result}");
            assert!(result["content"][0]["text"].as_str().unwrap().contains(word), "{arguments}: {result}");
        }
    }
    assert!(hub.audit_has("call read_file refused").await.decision.is_none());
}

#[tokio::test]
async fn arguments_of_any_depth_are_refused_and_disturb_nobody() {
    let hub = Hub::start().await;
    let depth = 200_000;
    for client in hub.both(&hub.key).await {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let deep = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            let message = client.message("tools/call", json!({ "name": "read_file", "arguments": { "path": "DEEP" } }));
            let text = message.to_string().replace("\"DEEP\"", &deep);
            let answer = client.exchange(&client.ask(&message).body(&text)).await;
            let refused = answer.message()["error"].is_object() || answer.result()["isError"] == true;
            assert!(refused, "{answer:?}");
            assert!(!client.tools().await.is_empty());
        }
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_declared_or_not() {
    let hub = Hub::start().await;
    let client = hub.modern(&hub.key);
    let message =
        client.message("tools/call", json!({ "name": "echo", "arguments": { "message": "x".repeat(5 << 20) } }));
    let ask = client.ask(&message);
    assert_eq!(hub.ask(&ask).await.status(), 413);
    // Only said to be large: refused before it comes.
    let mut wire = hub.connect().await;
    wire.send(&client.ask(&json!({})).header("Content-Length", "999999999999")).await;
    assert_eq!(wire.head().await.status, 413);

    let mut wire = hub.connect().await;
    wire.send(&ask.clone().header("Transfer-Encoding", "chunked").body("")).await;
    let chunk = format!("{:x}\r\n{}\r\n", 64 << 10, "x".repeat(64 << 10));
    for _ in 0..80 {
        wire.write(chunk.as_bytes()).await;
    }
    assert_eq!(wire.head().await.status, 413);
    assert!(!client.tools().await.is_empty());

    let mut sse = hub.sse(&hub.key).await;
    assert_eq!(sse.post(&message).await.status(), 413);
    assert_eq!(sse.request("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn a_body_in_chunks_is_as_good_as_any() {
    let hub = Hub::start().await;
    let client = hub.modern(&hub.key);
    let message = client.message("tools/list", json!({}));
    let text = message.to_string();
    let (one, two) = text.split_at(text.len() / 2);
    let body = format!("{:x}\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n", one.len(), two.len());
    let response = hub.ask(&client.ask(&message).header("Transfer-Encoding", "chunked").body(&body)).await;
    assert_eq!(response.status(), 200, "{response:?}");
}

#[tokio::test]
async fn the_wrong_kind_of_content_is_refused() {
    let hub = Hub::start().await;
    for client in hub.both(&hub.key).await {
        let ask = client.ask(&client.message("tools/list", json!({})));
        for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""] {
            assert_eq!(hub.ask(&ask.clone().header("Content-Type", kind)).await.status(), 415, "{kind}");
        }
        for accept in ["application/json", "text/event-stream", "text/html", ""] {
            assert_eq!(hub.ask(&ask.clone().header("Accept", accept)).await.status(), 406, "{accept}");
        }
        assert_eq!(hub.ask(&ask.clone().without("Accept")).await.status(), 406);
        let fine = ask.header("Content-Type", "application/json; charset=utf-8").header("Accept", "*/*");
        assert_eq!(hub.ask(&fine).await.status(), 200);
    }
    let client = hub.legacy(&hub.key).await;
    let get = Ask::get("/mcp").key(&hub.key).header("Mcp-Session-Id", client.session.as_ref().unwrap());
    assert_eq!(hub.ask(&get.header("Accept", "application/json")).await.status(), 406);
}

#[tokio::test]
async fn a_bad_version_header_in_a_session_is_refused() {
    let hub = Hub::start().await;
    let client = hub.legacy(&hub.key).await;
    let ask = client.ask(&client.message("tools/list", json!({})));
    for version in ["1999-01-01", "nonsense", "2026-07-28", "2027-01-01", ""] {
        let response = hub.ask(&ask.clone().header("MCP-Protocol-Version", version)).await;
        assert_eq!(response.status(), 400, "{version}: {response:?}");
    }
    assert!(!client.tools().await.is_empty());
}

#[tokio::test]
async fn headers_that_do_not_say_what_the_body_says_are_refused() {
    let hub = Hub::start().await;
    let client = hub.modern(&hub.key);
    let list = client.ask(&client.message("tools/list", json!({})));
    let call = client.ask(&client.message("tools/call", json!({ "name": "get_session_info" })));
    for bad in [
        list.clone().header("Mcp-Method", "tools/call"),
        list.clone().without("Mcp-Method"),
        list.clone().header("MCP-Protocol-Version", "2025-11-25"),
        list.clone().without("MCP-Protocol-Version"),
        call.clone().header("Mcp-Name", "get_env"),
        call.clone().without("Mcp-Name"),
        call.clone().header("Mcp-Name", "=?base64?!!!?="),
    ] {
        refused(&hub, &client, &bad, 400, -32020).await;
    }
    let wrapped = call.header("Mcp-Name", "=?base64?Z2V0X3Nlc3Npb25faW5mbw==?=");
    assert_eq!(hub.ask(&wrapped).await.status(), 200);
}

#[tokio::test]
async fn an_argument_that_belongs_in_a_header_must_stand_there() {
    let hub = Hub::start().conformance().await;
    let client = hub.modern(&hub.key);
    let ask = client
        .ask(&client.message("tools/call", json!({ "name": "test_custom_header", "arguments": { "value": "eu" } })));
    refused(&hub, &client, &ask, 400, -32020).await;
    refused(&hub, &client, &ask.clone().header("Mcp-Param-Value", "us"), 400, -32020).await;
    assert_eq!(hub.ask(&ask.header("Mcp-Param-Value", "eu")).await.status(), 200);
}

#[tokio::test]
async fn a_modern_request_must_say_version_and_capabilities() {
    let hub = Hub::start().await;
    let client = hub.modern(&hub.key);
    let message = client.message("tools/list", json!({}));
    let without = |field: &str| {
        let mut message = message.clone();
        message["params"]["_meta"].as_object_mut().unwrap().remove(field);
        message
    };
    let mut no_meta = message.clone();
    no_meta["params"].as_object_mut().unwrap().remove("_meta");
    let mut wrong = message.clone();
    wrong["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!("none");
    for bad in [without(MODERN_META), without("io.modelcontextprotocol/clientCapabilities"), no_meta, wrong] {
        let error = refused(&hub, &client, &client.ask(&bad), 400, -32602).await;
        assert_eq!(error["id"], message["id"]);
    }
    let nameless = without("io.modelcontextprotocol/clientInfo");
    assert_eq!(hub.ask(&client.ask(&nameless)).await.status(), 200);
}

#[tokio::test]
async fn a_version_nobody_speaks_is_answered_with_those_that_are() {
    let hub = Hub::start().await;
    let client = hub.modern(&hub.key);
    for version in ["2027-01-01", "nonsense"] {
        let mut message = client.message("tools/list", json!({}));
        message["params"]["_meta"][MODERN_META] = version.into();
        let ask = client.ask(&message).header("MCP-Protocol-Version", version);
        let error = refused(&hub, &client, &ask, 400, -32022).await;
        assert_eq!(error["error"]["data"]["requested"], version);
        assert_eq!(error["error"]["data"]["supported"][0], "2026-07-28");
    }
}

#[tokio::test]
async fn an_id_that_is_in_use_is_refused_and_the_first_request_goes_on() {
    let hub = Hub::start().conformance().await;
    let client = hub.legacy(&hub.key).await;
    let sleep = json!({ "name": "test_sleep", "arguments": { "seconds": 1 }, "_meta": { "progressToken": 1 } });
    let mut first = client.start(&rpc(77, "tools/call", &sleep)).await;
    first.head().await;
    first.next().await;
    let second = client.exchange(&client.ask(&rpc(77, "tools/call", &sleep))).await;
    assert_eq!((second.status(), second.code()), (400, -32600));
    let last = loop {
        let message = first.next().await;
        if message["id"] == 77 {
            break message;
        }
    };
    assert_eq!(last["result"]["isError"], false);
}

#[tokio::test]
async fn what_is_no_http_is_refused_and_disturbs_nobody() {
    let hub = Hub::start().await;
    let long = format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(200_000));
    for bytes in ["\0\u{1}\u{2}nonsense\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", &long] {
        let mut wire = hub.connect().await;
        wire.write(bytes.as_bytes()).await;
        let head = wire.head().await;
        assert!((400..=505).contains(&head.status), "{head:?}");
    }
    let mut wire = hub.connect().await;
    wire.write(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}").await;
    assert_eq!(wire.head().await.status, 400);
    assert!(!hub.modern(&hub.key).tools().await.is_empty());
}

#[tokio::test]
async fn half_a_request_holds_up_nobody_else() {
    let hub = Hub::start().await;
    let mut half = Vec::new();
    for n in 0..100 {
        let mut wire = hub.connect().await;
        let key = &hub.key;
        match n % 3 {
            0 => wire.write(b"POST /mcp HTTP/1.1\r\nHost: loc").await,
            1 => wire.write(format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nAccept: */*\r\nContent-Length: 100\r\n\r\n{{").as_bytes()).await,
            _ => {}
        }
        half.push(wire);
    }
    for client in hub.both(&hub.key).await {
        client.does("get_session_info", json!({})).await;
    }
    assert_eq!(hub.ask(&Client::hello("2025-11-25").key(&secret("stranger"))).await.status(), 401);
}

#[tokio::test]
async fn a_slow_sender_is_waited_for() {
    let hub = Hub::start().await;
    let client = hub.modern(&hub.key);
    let bytes = client.ask(&client.message("tools/list", json!({}))).render(&hub.address);
    let mut wire = hub.connect().await;
    for piece in bytes.chunks(23) {
        wire.write(piece).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(wire.response().await.status(), 200);
}

/// Refused before its body has come: the body is awaited, so that the connection carries the next request.
#[tokio::test]
async fn a_refused_request_leaves_its_connection_usable() {
    let hub = Hub::start().await;
    let good = hub.modern(&hub.key);
    let good = good.ask(&good.message("tools/list", json!({})));
    let refused = [
        (403, good.clone().header("Host", "evil.example.com")),
        (401, good.clone().key("a-wrong-key-a-wrong-key-a-wrong-key")),
        (415, good.clone().header("Content-Type", "text/plain")),
        (404, Ask::new("POST", "/register").key(&hub.key).body("{\"redirect_uris\":[]}")),
    ];
    let mut wire = hub.connect().await;
    for (status, ask) in refused {
        let bytes = ask.render(&hub.address);
        let (head, body) = bytes.split_at(bytes.len() - 10);
        wire.write(head).await;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        wire.write(body).await;
        let response = wire.response().await;
        assert_eq!((response.status(), response.header("connection")), (status, None), "{response:?}");
        assert_eq!(wire.ask(&good).await.status(), 200, "after {status}");
    }
}

#[tokio::test]
async fn a_refused_request_that_keeps_its_body_is_told_that_the_connection_ends() {
    let hub = Hub::start().await;
    let strange = Ask::post(&json!({})).header("Host", "evil.example.com");
    for (length, expects) in [("100", ""), ("10000000", ""), ("100", "100-continue")] {
        let mut wire = hub.connect().await;
        let strange = strange.clone().header("Content-Length", length);
        // Whoever asks before they send is not told to go on.
        wire.send(&if expects.is_empty() { strange } else { strange.header("Expect", expects) }).await;
        let response = wire.response().await;
        assert_eq!((response.status(), response.header("connection")), (403, Some("close")), "{length}");
    }
}
