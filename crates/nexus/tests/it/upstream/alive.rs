//! Staying alive: a server that dies is started again, disturbs no other, and nothing is done twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nexus_core::tasks::Tasks;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Hub, TestServer, hostile, is_alive, signal, test_server, text_of, until, with};

use super::{echo, look, pid, ready};

#[tokio::test]
async fn a_killed_server_is_back_within_two_seconds_and_the_session_goes_on() {
    let hub = ready(json!({ "h": hostile("good"), "t": test_server() })).await;
    let client = hub.legacy_robot().await;
    let before = pid(&client, "h").await;
    signal(before, Signal::KILL);
    until("the process to be gone", || !is_alive(before)).await;
    let killed = Instant::now();
    // A call that comes while it is away waits for it, or is told that it was not sent.
    let after = loop {
        let result = client.call("mcp_h_look", json!({})).await;
        if result["isError"] != true {
            break u32::try_from(result["structuredContent"]["pid"].as_u64().unwrap()).unwrap();
        }
        let words = text_of(&result);
        assert!(words.contains("not sent") || words.contains("nothing was sent"), "{words}");
        assert!(killed.elapsed() < Duration::from_secs(10), "{words}");
    };
    assert_ne!(before, after);
    assert!(killed.elapsed() < Duration::from_secs(2), "{:?}", killed.elapsed());
    assert_eq!(text_of(&client.call("mcp_t_add", json!({ "a": 2, "b": 3 })).await), "5");
    assert_eq!(hub.upstream("h").await["state"], "ready");
}

#[tokio::test]
async fn a_call_that_was_under_way_says_that_it_may_have_happened_and_is_not_done_again() {
    let setup = Hub::start().robot();
    let notes = setup.notes("notes");
    let hub = setup.upstreams(&json!({ "h": hostile(&format!("good {}", notes.named("state"))) })).await;
    hub.upstream_is("h", "ready").await;
    for (n, client) in [hub.robot(), hub.legacy_robot().await].into_iter().enumerate() {
        let result = client.call("mcp_h_die", json!({ "line": format!("die {n}") })).await;
        assert_eq!(result["isError"], true, "{result}");
        assert!(text_of(&result).contains("may have happened"), "{result}");
        hub.upstream_reaches("h", |now| now["state"] == "ready" && notes.count("start") == n + 2).await;
        assert_eq!(text_of(&echo(&client, "h", "back").await), "back");
        assert_eq!(notes.count(&format!("note die {n}")), 1, "{:?}", notes.lines());
    }
}

#[tokio::test]
async fn kills_under_load_disturb_no_other_server_and_lose_or_repeat_no_call() {
    let setup = Hub::start().robot();
    let notes = setup.notes("notes");
    let hub =
        setup.upstreams(&json!({ "h": hostile(&format!("good {}", notes.named("state"))), "t": test_server() })).await;
    hub.upstream_is("h", "ready").await;
    hub.upstream_is("t", "ready").await;
    let (stop, done, other) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let tasks = Tasks::new();
    let (mut answered, mut lines) = (Vec::new(), tokio::sync::mpsc::unbounded_channel::<(String, Value)>());
    for caller in 0..4 {
        let (client, over, done, tell) = (hub.robot(), stop.clone(), done.clone(), lines.0.clone());
        tasks.spawn("a caller", async move {
            for n in 0.. {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let line = format!("{caller}-{n};");
                let result = client.call("mcp_h_note", json!({ "line": line })).await;
                done.fetch_add(1, Ordering::Relaxed);
                tell.send((line, result)).unwrap();
            }
        });
        let (client, over, other) = (hub.robot(), stop.clone(), other.clone());
        tasks.spawn("a caller of the other server", async move {
            while !over.load(Ordering::Relaxed) {
                let result = client.call("mcp_t_add", json!({ "a": 2, "b": 3 })).await;
                assert_eq!(text_of(&result), "5", "{result}");
                other.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    for _ in 0..3 {
        let before = done.load(Ordering::Relaxed);
        until("calls to be answered", || done.load(Ordering::Relaxed) > before + 20).await;
        let starts = notes.count("start");
        let process: u32 =
            notes.lines().iter().rev().find_map(|line| line.strip_prefix("start ")?.parse().ok()).unwrap();
        signal(process, Signal::KILL);
        until("the next start", || notes.count("start") > starts).await;
        hub.upstream_is("h", "ready").await;
    }
    stop.store(true, Ordering::Relaxed);
    assert!(tasks.finish(Duration::from_secs(30)).await);
    assert!(other.load(Ordering::Relaxed) > 10);
    drop(lines.0);
    while let Some(line) = lines.1.recv().await {
        answered.push(line);
    }
    let written = notes.lines();
    for (line, result) in answered {
        let times = written.iter().filter(|known| **known == format!("note {line}")).count();
        match (result["isError"] == true, text_of(&result)) {
            (false, _) => assert_eq!(times, 1, "{line} was answered"),
            (true, words) if words.contains("may have happened") => assert!(times <= 1, "{line}: {times} times"),
            (true, words) => assert_eq!(times, 0, "{line}: {words}"),
        }
    }
}

#[tokio::test]
async fn a_server_over_http_that_restarts_is_found_again_without_losing_the_callers_session() {
    let web = TestServer::start("127.0.0.1:0").await;
    let address = web.address().to_owned();
    let servers = json!({ "old": { "url": web.url, "era": "legacy" }, "new": { "url": web.url } });
    let hub = ready(servers).await;
    let client = hub.legacy_robot().await;
    for server in ["old", "new"] {
        let result = client.call(&format!("mcp_{server}_add"), json!({ "a": 2, "b": 3 })).await;
        assert_eq!(text_of(&result), "5", "{server}: {result}");
    }
    web.kill().await;
    let failed = client.call("mcp_new_add", json!({ "a": 2, "b": 3 })).await;
    assert_eq!(failed["isError"], true, "{failed}");
    let _web = TestServer::start(&address).await;
    for server in ["old", "new"] {
        let started = Instant::now();
        loop {
            let result = client.call(&format!("mcp_{server}_add"), json!({ "a": 2, "b": 3 })).await;
            if text_of(&result) == "5" {
                break;
            }
            assert!(started.elapsed() < Duration::from_secs(10), "{server}: {result}");
        }
    }
}

#[tokio::test]
async fn a_lazy_server_is_started_by_its_first_call_and_its_tools_are_known_before() {
    let setup = Hub::start().robot();
    let notes = setup.notes("notes");
    let entry = hostile(&format!("good {}", notes.named("state")));
    let mut hub = setup.upstreams(&json!({ "h": entry })).await;
    hub.upstream_is("h", "ready").await;
    let lazy = |entry| with(entry, json!({ "lazy": true }));
    hub.configures(&json!({ "h": lazy(entry) }));
    hub.restart().await;
    let client = hub.robot();
    hub.upstream_reaches("h", |now| now["tools"] == 8).await;
    assert!(client.tools().await.contains(&"mcp_h_echo".to_owned()), "{:?}", hub.upstream("h").await);
    assert_ne!(hub.upstream("h").await["state"], "ready");
    assert_eq!(notes.count("start"), 1, "listing starts nothing");
    assert_eq!(text_of(&echo(&client, "h", "x").await), "x");
    assert_eq!((notes.count("start"), look(&client, "h").await["starts"].clone()), (2, json!(2)));
}

#[tokio::test]
async fn a_server_that_cannot_be_started_says_why_and_when_it_is_tried_again() {
    let hub = Hub::start()
        .robot()
        .upstreams(&json!({ "h": { "command": "no-such-program-anywhere" }, "t": test_server() }))
        .await;
    hub.upstream_is("t", "ready").await;
    let now = hub.upstream_is("h", "waiting").await;
    assert!(now.to_string().contains("no-such-program-anywhere"), "{now}");
    let listed = hub.listed("h").await;
    assert!(listed.to_string().contains("no-such-program-anywhere"), "{listed}");
    let result = hub.robot().send("tools/call", json!({ "name": "mcp_h_echo", "arguments": {} })).await;
    assert!(result.messages.len() == 1);
}
