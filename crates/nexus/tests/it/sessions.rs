//! Sessions: whose they are, how many there may be, and what one may do at a time.

use serde_json::json;

use crate::support::{Ask, Client, Hub, secret, until, within};

#[tokio::test]
async fn another_keys_session_does_not_exist() {
    let hub = Hub::start().key("other", "level: yolo").await;
    let mine = hub.legacy(&hub.key).await;
    let session = mine.session.clone().unwrap();
    let list = mine.message("tools/list", json!({}));
    let answers = async |session: &str, key: &str| {
        let post = mine.ask(&list).key(key).header("Mcp-Session-Id", session);
        let get = Ask::get("/mcp").key(key).header("Mcp-Session-Id", session);
        let delete = Ask::new("DELETE", "/mcp").key(key).header("Mcp-Session-Id", session);
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let notify = mine.ask(&note).key(key).header("Mcp-Session-Id", session);
        let mut seen = Vec::new();
        for ask in [post, get, delete, notify] {
            let response = hub.ask(&ask).await;
            seen.push((response.status(), response.body));
        }
        seen
    };
    let stolen = answers(&session, &secret("other")).await;
    assert!(stolen.iter().all(|(status, _)| *status == 404), "{stolen:?}");
    assert_eq!(stolen, answers("0123456789abcdef0123456789abcdef", &secret("other")).await);
    assert!(!mine.tools().await.is_empty());
}

#[tokio::test]
async fn another_keys_stream_cannot_be_posted_to() {
    let hub = Hub::start().key("other", "level: yolo").await;
    let mut mine = hub.sse(&hub.key).await;
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    let stolen = hub.ask(&Ask::new("POST", &mine.endpoint).key(&secret("other")).body(&ping)).await;
    let unknown = hub.ask(&Ask::new("POST", "/messages?sessionId=x").key(&secret("other")).body(&ping)).await;
    assert_eq!((stolen.status(), stolen.body), (404, unknown.body));
    assert_eq!(hub.ask(&Ask::new("POST", "/messages").key(&hub.key).body(&ping)).await.status(), 400);
    assert_eq!(mine.request("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn delete_ends_a_session_and_its_streams() {
    let hub = Hub::start().await;
    let client = hub.legacy(&hub.key).await;
    let session = client.session.clone().unwrap();
    let (head, mut stream) = hub.open(&Ask::get("/mcp").key(&hub.key).header("Mcp-Session-Id", &session)).await;
    assert_eq!(head.status, 200);
    let delete = Ask::new("DELETE", "/mcp").key(&hub.key).header("Mcp-Session-Id", &session);
    let gone = hub.ask(&delete).await.status();
    assert!((200..300).contains(&gone), "{gone}");
    assert!(stream.event().await.is_none());
    assert_eq!(client.send("tools/list", json!({})).await.status(), 404);
    assert_eq!(hub.ask(&delete).await.status(), 404);
    let rows = hub.audit_reaches(|rows| rows.iter().any(|row| row.event == "session_ended")).await;
    let ended = rows.iter().find(|row| row.event == "session_ended").unwrap();
    assert_eq!((ended.principal.as_deref(), ended.client.as_deref()), (Some("default"), Some("it/1")));
    assert!(!format!("{rows:?}").contains(&session), "the wire's id is a capability");
}

#[tokio::test]
async fn the_old_era_needs_a_session() {
    let hub = Hub::start().await;
    let client = hub.legacy(&hub.key).await;
    let ask = client.ask(&client.message("tools/list", json!({}))).without("Mcp-Session-Id");
    assert_eq!(hub.ask(&ask).await.status(), 400);
    assert_eq!(hub.ask(&Ask::get("/mcp").key(&hub.key)).await.status(), 400);
    assert_eq!(hub.ask(&Ask::new("DELETE", "/mcp").key(&hub.key)).await.status(), 400);
    // The version header is optional there: clients up to 2025-03-26 do not send it.
    let ask = client.ask(&client.message("tools/list", json!({}))).without("MCP-Protocol-Version");
    assert_eq!(hub.ask(&ask).await.status(), 200);
}

#[tokio::test]
async fn when_there_are_too_many_sessions_the_idle_go_and_the_busy_stay() {
    let hub = Hub::start().yaml("server: { limits: { sessions: 2 } }").await;
    let busy = hub.legacy(&hub.key).await;
    let listen =
        |client: &Client| Ask::get("/mcp").key(&hub.key).header("Mcp-Session-Id", client.session.as_ref().unwrap());
    let (_, _stream) = hub.open(&listen(&busy)).await;
    let idle = hub.legacy(&hub.key).await;
    let third = hub.legacy(&hub.key).await;
    assert_eq!(idle.send("tools/list", json!({})).await.status(), 404);
    assert_eq!(busy.send("tools/list", json!({})).await.status(), 200);

    let (_, _other) = hub.open(&listen(&third)).await;
    let full = hub.ask(&Client::hello("2025-11-25").key(&hub.key)).await;
    assert_eq!(full.status(), 503);
    assert!(full.header("retry-after").is_some());
    let full = hub.ask(&Ask::get("/sse").key(&hub.key)).await;
    assert_eq!(full.status(), 503);
    // The era without sessions does not need one.
    assert!(!hub.modern(&hub.key).tools().await.is_empty());
}

#[tokio::test]
async fn an_sse_session_ends_with_its_stream() {
    let hub = Hub::start().await;
    let sse = hub.sse(&hub.key).await;
    let sessions = async || hub.ask(&Ask::get("/health")).await.json()["sessions"].as_u64().unwrap();
    assert_eq!(sessions().await, 1);
    let endpoint = sse.endpoint.clone();
    drop(sse);
    within("the end of the session", async { while sessions().await > 0 {} }).await;
    assert_eq!(hub.ask(&Ask::new("POST", &endpoint).key(&hub.key).body("{}")).await.status(), 404);
    hub.audit_reaches(|rows| rows.iter().any(|row| row.event == "session_ended")).await;
}

#[tokio::test]
async fn one_session_has_a_limited_number_of_streams() {
    let hub = Hub::start().await;
    let client = hub.legacy(&hub.key).await;
    let listen = Ask::get("/mcp").key(&hub.key).header("Mcp-Session-Id", client.session.as_ref().unwrap());
    let mut open = Vec::new();
    let refused = loop {
        let (head, stream) = hub.open(&listen).await;
        if head.status != 200 {
            break head.status;
        }
        open.push(stream);
        assert!(open.len() < 1000, "no cap on the streams of a session");
    };
    assert_eq!(refused, 409);
    assert!(!client.tools().await.is_empty());
}

#[tokio::test]
async fn one_key_has_a_limited_number_of_subscriptions() {
    let hub = Hub::start().await;
    let client = hub.modern(&hub.key);
    let params = json!({ "notifications": { "toolsListChanged": true } });
    let mut open = Vec::new();
    loop {
        let mut wire = client.start(&client.message("subscriptions/listen", params.clone())).await;
        if !wire.head().await.is_stream() {
            break;
        }
        open.push(wire);
        assert!(open.len() < 400, "no cap on subscriptions");
    }
    assert!(!client.tools().await.is_empty());
}

#[tokio::test]
async fn one_session_has_a_limited_number_of_calls_in_flight() {
    let hub = Hub::start().conformance().yaml("server: { limits: { calls_per_session: 2 } }").await;
    let client = hub.legacy(&hub.key).await;
    let sleep = json!({ "name": "test_sleep", "arguments": { "seconds": 300 }, "_meta": { "progressToken": 1 } });
    let mut running = Vec::new();
    for _ in 0..2 {
        let mut wire = client.start(&client.message("tools/call", sleep.clone())).await;
        wire.head().await;
        wire.next().await;
        running.push(wire);
    }
    let refused = client.call("echo", json!({ "message": "x" })).await;
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(refused["content"][0]["text"].as_str().unwrap().contains("2 calls of this session are still running"));
    hub.audit_has("call echo refused").await;
    // Another session of the same key has its own places.
    assert_eq!(hub.legacy(&hub.key).await.call("echo", json!({ "message": "x" })).await["isError"], false);
}

#[tokio::test]
async fn a_key_that_calls_too_fast_is_told_when_to_come_back_and_others_are_not() {
    let hub = Hub::start().key("other", "").yaml("server: { rate_limit: { per_second: 1, burst: 5 } }").await;
    let client = hub.modern(&hub.key);
    let ask = client.ask(&client.message("tools/list", json!({})));
    let mut wire = hub.connect().await;
    let mut tries = 0;
    let refused = loop {
        let response = wire.ask(&ask).await;
        if response.status() != 200 {
            break response;
        }
        tries += 1;
        assert!(tries < 1000, "no limit");
    };
    assert!(tries >= 5, "{tries}");
    assert_eq!(refused.status(), 429);
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert!(!hub.modern(&secret("other")).tools().await.is_empty());
    assert_eq!(hub.ask(&Ask::get("/health")).await.status(), 200);
}

#[tokio::test]
async fn a_leased_key_has_one_session_whatever_the_wire_says_and_others_have_many() {
    let hub = Hub::start().key("leased", "session: lease").await;
    let session = async |client: &Client| client.does("get_session_info", json!({})).await["session"].clone();
    let leased = secret("leased");
    let one = session(&hub.legacy(&leased).await).await;
    assert_eq!(session(&hub.legacy(&leased).await).await, one);
    assert_eq!(session(&hub.modern(&leased)).await, one);

    let own = session(&hub.legacy(&hub.key).await).await;
    assert_ne!(own, one);
    assert_ne!(session(&hub.legacy(&hub.key).await).await, own);
    // Without sessions on the wire a key has one lease.
    let lease = session(&hub.modern(&hub.key)).await;
    assert_ne!(lease, own);
    assert_eq!(session(&hub.modern(&hub.key)).await, lease);
}

#[tokio::test]
async fn a_lease_that_nobody_used_for_long_is_a_new_session() {
    let hub = Hub::start().yaml("server: { limits: { lease_idle: 50ms } }").await;
    let client = hub.modern(&hub.key);
    let session = async || client.does("get_session_info", json!({})).await["session"].clone();
    let first = session().await;
    let idle = std::time::Instant::now();
    until("the lease to run out", || idle.elapsed().as_millis() > 200).await;
    assert_ne!(session().await, first);
    hub.audit_reaches(|rows| rows.iter().any(|row| row.detail.as_deref() == Some("lease ran out"))).await;
}
