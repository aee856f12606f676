//! What a server can do wrong, and that it harms nobody but itself.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Client, Hub, command_of, hostile, is_alive, test_server, text_of, until, with};

use super::{beside, echo, ready};

/// Says on its own what a call came to, so that nothing is left to hang on.
async fn told(client: &Client, tool: &str, arguments: Value) -> (bool, String) {
    let answer = client.send("tools/call", json!({ "name": tool, "arguments": arguments })).await;
    let result = answer.result();
    (result["isError"].as_bool().unwrap_or(false), text_of(result))
}

/// The others go on.
async fn others_serve(client: &Client) {
    assert_eq!(told(client, "mcp_plain_add", json!({ "a": 2, "b": 3 })).await, (false, "5".to_owned()));
    assert_eq!(text_of(&echo(client, "python", "fine").await), "fine");
}

#[tokio::test]
async fn answers_with_wrong_ids_are_nobodys_and_the_call_fails_in_time() {
    let hub = ready(beside("h", &with(hostile("wrong-ids"), json!({ "timeout": 1 })))).await;
    let client = hub.robot();
    let (failed, words) = told(&client, "mcp_h_echo", json!({ "message": "x" })).await;
    assert!(failed && words.contains("may have happened") && !words.contains("a wrong answer"), "{words}");
    others_serve(&client).await;
}

#[tokio::test]
async fn a_second_answer_to_the_same_request_is_ignored() {
    for era in ["old", "new"] {
        let hub = ready(json!({ "h": hostile(&format!("twice era={era}")) })).await;
        for client in [hub.robot(), hub.legacy_robot().await] {
            for n in 0..20 {
                assert_eq!(text_of(&echo(&client, "h", &format!("first {n}")).await), format!("first {n}"));
            }
        }
    }
}

#[tokio::test]
async fn more_than_a_hundred_unrelated_messages_fail_the_call_that_waits() {
    let few = hostile("flood count=100");
    let many = hostile("flood count=101");
    let endless = hostile("flood count=200000");
    let hub = ready(
        json!({ "few": few, "many": many, "endless": endless, "plain": test_server(), "python": hostile("good") }),
    )
    .await;
    let client = hub.robot();
    assert_eq!(told(&client, "mcp_few_echo", json!({ "message": "x" })).await, (false, "x".to_owned()));
    for server in ["many", "endless"] {
        let (failed, words) = told(&client, &format!("mcp_{server}_echo"), json!({ "message": "x" })).await;
        assert!(failed && words.contains("unrelated"), "{server}: {words}");
    }
    others_serve(&client).await;
}

#[tokio::test]
async fn progress_and_log_messages_are_not_counted_however_many() {
    let hub =
        ready(json!({ "p": hostile("flood kind=progress count=5000"), "l": hostile("flood kind=log count=5000") }))
            .await;
    for client in [hub.robot(), hub.legacy_robot().await] {
        for server in ["p", "l"] {
            assert_eq!(text_of(&echo(&client, server, "x").await), "x", "{server}");
        }
    }
}

#[tokio::test]
async fn a_line_of_a_hundred_megabytes_fails_its_call_and_costs_no_memory() {
    for (mode, says) in [("long-line", "larger"), ("long-line hide", "larger")] {
        let hub = ready(beside("h", &hostile(mode))).await;
        let client = hub.robot();
        others_serve(&client).await;
        let before = hub.resident_kib();
        let (failed, words) = told(&client, "mcp_h_big", json!({ "bytes": 100_000_000 })).await;
        assert!(failed && words.contains(says), "{mode}: {words}");
        let grown = hub.resident_kib().saturating_sub(before);
        assert!(grown < 40 * 1024, "{mode}: {grown} KiB more");
        others_serve(&client).await;
        // The connection is good for the next one.
        assert_eq!(text_of(&echo(&client, "h", "again").await), "again", "{mode}");
    }
}

#[tokio::test]
async fn what_is_no_message_is_passed_over() {
    for era in ["old", "new"] {
        let hub = ready(json!({ "h": hostile(&format!("garbage era={era}")) })).await;
        for client in [hub.robot(), hub.legacy_robot().await] {
            for n in 0..3 {
                assert_eq!(text_of(&echo(&client, "h", &n.to_string()).await), n.to_string());
            }
        }
    }
}

#[tokio::test]
async fn bytes_that_come_one_by_one_are_an_answer_in_the_end() {
    let hub = ready(beside("h", &hostile("slow-bytes each_ms=0.2"))).await;
    let client = hub.robot();
    assert_eq!(text_of(&echo(&client, "h", "slowly").await), "slowly");
    others_serve(&client).await;
}

#[tokio::test]
async fn a_server_that_floods_its_stderr_works_and_its_log_stays_small_and_clean() {
    let hub = ready(beside("h", &hostile("stderr-flood megabytes=30"))).await;
    others_serve(&hub.robot()).await;
    assert_eq!(text_of(&echo(&hub.robot(), "h", "x").await), "x");
    assert!(hub.resident_kib() < 150 * 1024, "{} KiB", hub.resident_kib());
    let log = hub.mcp(&["logs", "h"]).await.ok();
    assert!(log.contains("noise"), "{log}");
    assert!(log.len() < 4_000_000, "{} bytes", log.len());
    assert!(!log.contains(['\u{1b}', '\u{202e}']) && !log.contains("sk-ant-api03-0123456789"), "{}", &log[..500]);
}

#[tokio::test]
async fn a_result_that_is_none_fails_its_call_alone() {
    let shapes = [
        "list",
        "text",
        "null",
        "number",
        "neither",
        "both",
        "empty",
        "content-text",
        "content-odd",
        "error-text",
        "error-odd",
        "error",
        "input-required",
        "unknown-type",
        "deep",
    ];
    for era in ["old", "new"] {
        let entry = with(hostile(&format!("odd-results era={era}")), json!({ "timeout": 5 }));
        let hub = ready(json!({ "h": entry })).await;
        for client in [hub.robot(), hub.legacy_robot().await] {
            for shape in shapes {
                let started = Instant::now();
                let answer =
                    client.send("tools/call", json!({ "name": "mcp_h_echo", "arguments": { "message": shape } })).await;
                assert_eq!(answer.status(), 200, "{era} {shape}: {answer:?}");
                let message = answer.message().to_string();
                assert!(!message.contains("\\u001b") && !message.contains('\u{202e}'), "{era} {shape}: {message}");
                assert!(started.elapsed() < Duration::from_secs(20), "{era} {shape}");
            }
            assert_eq!(super::look(&client, "h").await["starts"], 1, "it was not restarted for that");
        }
    }
}

#[tokio::test]
async fn a_storm_of_questions_is_answered_with_refusals_and_bothers_nobody() {
    let setup = Hub::start().robot();
    let notes = setup.notes("notes");
    let storm = hostile(&format!("storm count=1000 {}", notes.named("state")));
    let roots = hostile("storm count=1000 method=roots/list");
    let made_up = hostile("storm count=1000 method=made/up");
    let hub = setup.upstreams(&beside("h", &storm)).await;
    for server in ["h", "plain", "python"] {
        hub.upstream_is(server, "ready").await;
    }
    let client = hub.robot();
    // Answered or given up, but not left to hang; either is the server's own doing.
    let (_, words) = told(&client, "mcp_h_echo", json!({ "message": "x" })).await;
    assert!(!words.is_empty());
    until("every question to be refused or the call to be over", || notes.count("reply") > 0 || !words.is_empty())
        .await;
    others_serve(&client).await;
    hub.configures(&json!({ "r": roots, "m": made_up, "plain": test_server(), "python": hostile("good") }));
    for server in ["r", "m"] {
        hub.upstream_is(server, "ready").await;
        told(&client, &format!("mcp_{server}_echo"), json!({ "message": "x" })).await;
    }
    others_serve(&client).await;
}

#[tokio::test]
async fn a_server_may_end_at_every_step_and_is_told_of_with_its_last_words() {
    for at in ["start", "initialize", "greeted", "initialized", "list"] {
        let hub = Hub::start().robot().upstreams(&beside("h", &hostile(&format!("exits at={at}")))).await;
        hub.upstream_is("plain", "ready").await;
        hub.upstream_is("python", "ready").await;
        let now = hub.upstream_is("h", "waiting").await;
        assert!(now.to_string().contains("my last words") || now.to_string().contains('3'), "{at}: {now}");
        others_serve(&hub.robot()).await;
    }
}

#[tokio::test]
async fn a_server_that_ends_at_a_step_once_is_ready_a_moment_later() {
    for at in ["start", "initialize", "greeted", "initialized", "list"] {
        let setup = Hub::start().robot();
        let notes = setup.notes("notes");
        let once = hostile(&format!("exits at={at} times=1 {}", notes.named("state")));
        let hub = setup.upstreams(&json!({ "h": once })).await;
        let started = Instant::now();
        hub.upstream_is("h", "ready").await;
        assert!(started.elapsed() < Duration::from_secs(5), "{at}: {:?}", started.elapsed());
        assert_eq!(text_of(&echo(&hub.robot(), "h", at).await), at);
    }
}

#[tokio::test]
async fn a_server_that_ends_when_asked_for_its_era_is_spoken_to_in_the_old_one() {
    let hub = ready(json!({ "h": hostile("exits at=discover") })).await;
    assert_eq!(text_of(&echo(&hub.robot(), "h", "x").await), "x");
    assert_eq!(hub.upstream("h").await["era"], "legacy");
}

#[tokio::test]
async fn a_server_that_starts_slowly_and_knows_only_the_old_era_becomes_ready() {
    // Longer than one waits for an answer about the era.
    let hub = ready(json!({ "h": hostile("slow-start seconds=12") })).await;
    assert_eq!(text_of(&echo(&hub.robot(), "h", "x").await), "x");
    assert_eq!(super::look(&hub.robot(), "h").await["starts"], 1, "one process was enough");
}

#[tokio::test]
async fn a_server_that_says_nothing_keeps_nobody_waiting() {
    let hub = Hub::start().robot().upstreams(&beside("h", &hostile("mute"))).await;
    hub.upstream_is("plain", "ready").await;
    hub.upstream_is("python", "ready").await;
    assert_ne!(hub.upstream("h").await["state"], "ready");
    others_serve(&hub.robot()).await;

    let hub = ready(beside("h", &with(hostile("mute from=call"), json!({ "timeout": 1 })))).await;
    let (failed, words) = told(&hub.robot(), "mcp_h_echo", json!({ "message": "x" })).await;
    assert!(failed && words.contains("did not answer") && words.contains("may have happened"), "{words}");
    others_serve(&hub.robot()).await;
}

#[tokio::test]
async fn a_server_of_an_unknown_version_is_told_of_and_not_used() {
    let hub = Hub::start().robot().upstreams(&beside("h", &hostile("other-version"))).await;
    hub.upstream_is("plain", "ready").await;
    hub.upstream_is("python", "ready").await;
    let now = hub.upstream_reaches("h", |now| now.to_string().contains("1999-01-01")).await;
    assert_ne!(now["state"], "ready", "{now}");
    others_serve(&hub.robot()).await;
}

#[tokio::test]
async fn every_misbehaviour_at_once_leaves_a_hub_that_serves_and_ends() {
    let setup = Hub::start().robot();
    let pids = setup.notes("pids");
    let modes = [
        "exits at=start",
        "exits at=list",
        "mute",
        "other-version",
        "wrong-ids",
        "twice",
        "flood count=5000",
        "garbage",
        "slow-bytes each_ms=1",
        "stderr-flood megabytes=5",
        "storm",
        "pages kind=endless",
        "pages kind=same",
        "pages kind=huge",
        "names",
        "schemas",
        "many count=500",
        &format!("grandchildren {}", pids.named("pids")),
    ];
    let mut servers = json!({ "plain": test_server(), "python": hostile("good") });
    for (n, mode) in modes.iter().enumerate() {
        servers[format!("h{n}")] = with(hostile(mode), json!({ "timeout": 5 }));
    }
    let mut hub = setup.upstreams(&servers).await;
    hub.upstream_is("plain", "ready").await;
    hub.upstream_is("python", "ready").await;
    let client = hub.robot();
    for _ in 0..20 {
        others_serve(&client).await;
    }
    until("the grandchildren to be there", || pids.numbers().len() >= 3).await;
    others_serve(&hub.legacy_robot().await).await;
    assert!(hub.resident_kib() < 250 * 1024, "{} KiB", hub.resident_kib());
    let all = hub.descendants();
    assert!(hub.stop().await.success(), "{}", hub.said());
    for pid in all.into_iter().chain(pids.numbers()) {
        until(&format!("process {pid} to end: {}", command_of(pid)), || !is_alive(pid)).await;
    }
}
