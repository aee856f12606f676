//! Servers over HTTP: which addresses may be called, what is sent where, and what comes back without an end.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Hub, Notes, Web, hostile, test_server, text_of, until, with};

use super::{echo, ready};

fn requests(notes: &Notes) -> Vec<Value> {
    notes.lines().iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn addresses_that_are_not_public_are_not_called_unless_the_entry_says_so() {
    let addresses = [
        "http://10.0.0.1/mcp",
        "http://192.168.1.1:3000/mcp",
        "http://172.16.0.1/mcp",
        "http://100.64.0.1/mcp",
        "http://169.254.169.254/latest/meta-data",
        "http://169.254.1.1/mcp",
        "http://0.1.2.3/mcp",
        "http://[fd00:ec2::254]/mcp",
        "http://[fe80::1]/mcp",
        "http://[fc00::1]/mcp",
        "http://[::ffff:10.0.0.1]/mcp",
        "http://[::ffff:169.254.169.254]/mcp",
        "http://224.0.0.1/mcp",
        "http://255.255.255.255/mcp",
        "http://2852039166/mcp",
        "http://0xa9.0xfe.0xa9.0xfe/mcp",
    ];
    let mut servers = json!({ "t": test_server() });
    for (n, url) in addresses.iter().enumerate() {
        servers[format!("a{n}")] = json!({ "url": url });
    }
    servers["metadata-allowed"] = json!({ "url": "http://169.254.169.254/mcp", "allow_private": true });
    let hub = Hub::start().robot().upstreams(&servers).await;
    hub.upstream_is("t", "ready").await;
    for (n, url) in addresses.iter().enumerate() {
        let now = hub.upstream_reaches(&format!("a{n}"), |now| now.to_string().contains("may not be called")).await;
        assert_ne!(now["state"], "ready", "{url}");
    }
    hub.upstream_reaches("metadata-allowed", |now| now.to_string().contains("may not be called")).await;
}

#[tokio::test]
async fn localhost_may_be_called_by_any_of_its_names() {
    let web = Web::start("good").await;
    let servers = json!({ "a": { "url": web.url }, "b": { "url": format!("http://localhost:{}/mcp", web.port()) } });
    let hub = ready(servers).await;
    for server in ["a", "b"] {
        assert_eq!(text_of(&echo(&hub.robot(), server, "x").await), "x");
    }
}

#[tokio::test]
async fn a_redirect_never_leads_to_a_private_address_nor_takes_credentials_to_another_host() {
    let setup = Hub::start().robot();
    let (seen, first) = (setup.notes("seen"), setup.notes("first"));
    let thief = Web::start(&format!("good {}", seen.named("record"))).await;
    let away =
        Web::start(&format!("redirect to=http://localhost:{}/mcp {}", thief.port(), first.named("record"))).await;
    let private = Web::start("redirect to=http://10.1.2.3/mcp").await;
    let metadata = Web::start("redirect to=http://169.254.169.254/latest").await;
    let file = Web::start("redirect to=file:///etc/passwd").await;
    let found = Web::start("redirect code=302 to=http://127.0.0.1:1/mcp").await;
    let round = Web::start("loop").await;
    let secret = json!({ "headers": { "Authorization": "Bearer top-secret-of-the-entry", "X-Api-Key": "another-secret-value" } });
    let mut servers = json!({ "t": test_server() });
    for (name, web) in [
        ("away", &away),
        ("private", &private),
        ("metadata", &metadata),
        ("file", &file),
        ("found", &found),
        ("round", &round),
    ] {
        servers[name] = with(json!({ "url": web.url }), secret.clone());
    }
    let hub = setup.upstreams(&servers).await;
    hub.upstream_is("t", "ready").await;
    for name in ["private", "metadata", "file", "found", "round"] {
        let now = hub.upstream_is(name, "waiting").await;
        assert!(!now.to_string().contains("top-secret"), "{now}");
    }
    until("the configured host to be called", || !first.lines().is_empty()).await;
    assert!(
        requests(&first).iter().all(|request| request["headers"]["authorization"] == "Bearer top-secret-of-the-entry")
    );
    hub.upstream_reaches("away", |now| !matches!(now["state"].as_str(), None | Some("connecting"))).await;
    for request in requests(&seen) {
        let headers = request["headers"].to_string();
        assert!(!headers.contains("secret"), "{request}");
    }
    let kept = format!("{:?} {} {}", hub.audit().await, hub.said(), hub.mcp(&["list", "--json"]).await.ok());
    assert!(!kept.contains("top-secret-of-the-entry") && !kept.contains("another-secret-value"), "{kept}");
}

#[tokio::test]
async fn bodies_and_events_without_an_end_are_cut_off_and_cost_no_memory() {
    for mode in ["endless-body", "endless-event", "refuses status=500", "refuses status=400"] {
        let web = Web::start(mode).await;
        let hub = ready(json!({ "w": { "url": web.url }, "t": test_server() })).await;
        let client = hub.robot();
        let before = hub.resident_kib();
        let result = echo(&client, "w", "x").await;
        assert_eq!(result["isError"], true, "{mode}: {result}");
        let words = text_of(&result);
        assert!(words.len() < 5000 && !words.contains(['\u{1b}', '\u{202e}']), "{mode}: {words:?}");
        let grown = hub.resident_kib().saturating_sub(before);
        assert!(grown < 48 * 1024, "{mode}: {grown} KiB more");
        assert_eq!(text_of(&client.call("mcp_t_add", json!({ "a": 2, "b": 3 })).await), "5", "{mode}");
    }
}

#[tokio::test]
async fn an_answer_that_is_none_fails_the_call_and_says_so() {
    for (mode, certain) in [("wrong-type", false), ("hangs-up", false)] {
        let web = Web::start(mode).await;
        let hub = ready(json!({ "w": { "url": web.url } })).await;
        let result = echo(&hub.robot(), "w", "x").await;
        assert_eq!(result["isError"], true, "{mode}: {result}");
        assert!(certain || text_of(&result).contains("may have happened"), "{mode}: {result}");
    }
}

#[tokio::test]
async fn a_forgotten_session_is_renewed_and_the_call_that_found_out_was_not_done() {
    let setup = Hub::start().robot();
    let seen = setup.notes("seen");
    let web = Web::start(&format!("forgets every=2 {}", seen.named("record"))).await;
    let hub = setup.upstreams(&json!({ "w": { "url": web.url } })).await;
    hub.upstream_is("w", "ready").await;
    let client = hub.legacy_robot().await;
    let mut good = 0;
    for n in 0..8 {
        let result = echo(&client, "w", &n.to_string()).await;
        match result["isError"] == true {
            false => good += 1,
            true => {
                assert!(
                    text_of(&result).contains("not") && !text_of(&result).contains("may have happened"),
                    "{result}"
                );
            }
        }
        let started = Instant::now();
        hub.upstream_is("w", "ready").await;
        assert!(started.elapsed() < Duration::from_secs(2));
    }
    assert!(good >= 4, "{good} of 8");
    assert!(requests(&seen).iter().filter(|request| request["said"] == "initialize").count() >= 3);
}

#[tokio::test]
async fn a_stream_in_pieces_with_others_answers_in_it_is_read_right() {
    let web = Web::start("slow-events each_ms=0.5").await;
    let hub = ready(json!({ "w": { "url": web.url } })).await;
    assert_eq!(text_of(&echo(&hub.robot(), "w", "grüße").await), "grüße");
}

#[tokio::test]
async fn a_stream_that_only_shows_signs_of_life_times_out() {
    let web = Web::start("silent-stream").await;
    let hub = ready(json!({ "w": { "url": web.url, "timeout": 1 } })).await;
    let result = echo(&hub.robot(), "w", "x").await;
    assert!(result["isError"] == true && text_of(&result).contains("may have happened"), "{result}");
}

#[tokio::test]
async fn the_older_http_sse_is_found_by_itself_and_by_name() {
    let web = Web::start("sse").await;
    let hub = ready(json!({ "named": { "url": web.url, "type": "sse" }, "found": { "url": web.url } })).await;
    for client in [hub.robot(), hub.legacy_robot().await] {
        for server in ["named", "found"] {
            assert_eq!(text_of(&echo(&client, server, "x").await), "x", "{server}");
        }
    }
}

#[tokio::test]
async fn an_sse_server_cannot_send_the_messages_elsewhere() {
    let setup = Hub::start().robot();
    let seen = setup.notes("seen");
    let thief = Web::start(&format!("good {}", seen.named("record"))).await;
    let web = Web::start(&format!("sse endpoint=http://localhost:{}/mcp", thief.port())).await;
    let entry =
        json!({ "url": web.url, "type": "sse", "headers": { "Authorization": "Bearer top-secret-of-the-entry" } });
    let hub = setup.upstreams(&json!({ "w": entry, "t": test_server() })).await;
    hub.upstream_is("t", "ready").await;
    hub.upstream_is("w", "waiting").await;
    assert!(seen.lines().is_empty(), "{:?}", seen.lines());
}

#[tokio::test]
async fn a_server_that_wants_a_login_says_how_to_log_in() {
    let web = Web::start("wants-login").await;
    let hub = Hub::start().robot().upstreams(&json!({ "w": { "url": web.url }, "h": hostile("good") })).await;
    hub.upstream_is("h", "ready").await;
    let now = hub.upstream_reaches("w", |now| now.to_string().contains("nexus mcp login w")).await;
    assert_ne!(now["state"], "ready");
}

#[tokio::test]
async fn every_request_to_a_server_is_a_row_of_the_record_without_its_secrets() {
    let web = Web::start("good").await;
    let entry = json!({ "url": format!("{}?token=in-the-address-1234", web.url), "headers": { "Authorization": "Bearer top-secret-of-the-entry" } });
    let hub = ready(json!({ "w": entry })).await;
    echo(&hub.robot(), "w", "x").await;
    let rows = hub.audit_reaches(|rows| rows.iter().any(|row| row.event == "outbound")).await;
    let kept = format!("{rows:?}");
    assert!(!kept.contains("top-secret-of-the-entry") && !kept.contains("in-the-address-1234"), "{kept}");
}
