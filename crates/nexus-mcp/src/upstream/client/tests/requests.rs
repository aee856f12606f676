//! Requests, and all that can keep them from an answer.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use nexus_core::tasks::Tasks;

use super::bench::*;
use crate::upstream::client::{Ask, Client};
use crate::upstream::error::{Delivery, ProtocolError, RequestError, TransportError, UpstreamError};
use crate::upstream::transport::memory::{Far, MemoryConnector, Streams};

fn tool(name: &str) -> Ask<'static> {
    Ask::tool(name, "{}")
}

#[track_caller]
fn failure(answer: Result<Box<RawValue>, RequestError>) -> (ProtocolError, Delivery) {
    match answer {
        Err(RequestError { error: UpstreamError::Protocol(error), delivery }) => (error, delivery),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn answers_find_their_requests_in_whatever_order_they_come() {
    let held = Arc::new(Mutex::new(Vec::new()));
    let client = connect_old(move |far, heard| {
        let mut held = held.lock();
        held.push((heard.id, heard.params()["name"].clone()));
        if held.len() == 3 {
            for (id, name) in held.drain(..).rev() {
                answer(far, id, json!({ "name": name }));
            }
        }
    });
    let client = client.await;
    let (a, b, c) = tokio::join!(client.request(tool("a")), client.request(tool("b")), client.request(tool("c")));
    let texts = [a, b, c].map(|answer| answer.unwrap().get().to_owned());
    assert_eq!(texts, [r#"{"name":"a"}"#, r#"{"name":"b"}"#, r#"{"name":"c"}"#]);
    assert_eq!(client.in_flight(), 0);
}

#[tokio::test]
async fn a_request_of_the_new_era_says_who_asks_and_what_they_can() {
    let client = connect(options(), |far| {
        new_era(far, json!({}), |far, heard| answer(far, heard.id, json!({ "params": heard.params() })))
    });
    let client = client.await.unwrap();
    let mut ask = tool("t");
    ask.capabilities = Some(r#"{"elicitation":{}}"#);
    ask.log_level = Some("info");
    ask.meta = r#""traceparent":"00-1""#;
    let result: Value = serde_json::from_str(client.request(ask).await.unwrap().get()).unwrap();
    let meta = &result["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "nexus");
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({ "elicitation": {} }));
    assert_eq!(meta["io.modelcontextprotocol/logLevel"], "info");
    assert_eq!(meta["traceparent"], "00-1");
    assert!(meta["progressToken"].is_u64());
    assert_eq!((&result["params"]["name"], &result["params"]["arguments"]), (&json!("t"), &json!({})));
}

#[tokio::test]
async fn a_hundred_unrelated_messages_are_borne_and_one_more_is_not() {
    check(100, true).await;
    check(101, false).await;

    async fn check(count: usize, is_answered: bool) {
        let huge = json!({ "method": "notifications/message", "params": { "data": "x".repeat(100_000) } }).to_string();
        for stray in [
            r#"{"jsonrpc":"2.0","method":"notifications/nothing"}"#,
            r#"{"jsonrpc":"2.0","id":4711,"result":{}}"#,
            r#"{"level":"info","msg":"not a message"}"#,
            "[]]",
            &huge,
        ] {
            let stray = stray.to_owned();
            let said = stray.clone();
            let client = connect_old(move |far, heard| {
                if heard.method == "tools/call" {
                    (0..count).for_each(|_| far.say(said.clone()));
                    answer(far, heard.id, json!({}));
                }
            });
            let answer = client.await.request(tool("t")).await;
            match is_answered {
                true => assert!(answer.is_ok(), "{stray}: {answer:?}"),
                false => {
                    let (error, delivery) = failure(answer);
                    assert!(matches!(error, ProtocolError::Flooded(101)), "{stray}: {error}");
                    assert_eq!(delivery, Delivery::MayHaveHappened);
                }
            }
        }
    }
}

#[tokio::test]
async fn progress_logging_and_changes_of_lists_are_never_too_many() {
    let client = connect_old(|far, heard| {
        for _ in 0..1000 {
            notice(far, "notifications/progress", json!({ "progressToken": heard.id, "progress": 1 }));
            notice(far, "notifications/progress", json!({ "progressToken": "nobody's", "progress": 1 }));
            notice(far, "notifications/message", json!({ "level": "info", "data": "x" }));
            notice(far, "notifications/tools/list_changed", json!({}));
        }
        answer(far, heard.id, json!({}));
    });
    client.await.request(tool("t")).await.unwrap();
}

#[tokio::test]
async fn a_flood_on_the_stream_of_one_request_fails_no_other() {
    let connector = MemoryConnector::new(Tasks::new(), Streams::Separate, |far| {
        let mut quiet = None;
        new_era(far, json!({}), move |far, heard| match heard.params()["name"].as_str() {
            Some("loud") => {
                (0..200).for_each(|_| far.say_within(heard.id, r#"{"jsonrpc":"2.0","method":"x"}"#));
                if let Some(id) = quiet {
                    answer(far, id, json!({}));
                }
            }
            _ => quiet = Some(heard.id),
        })
    });
    let client = Client::connect(connector, options()).await.unwrap();
    let (quiet, loud) = tokio::join!(client.request(tool("quiet")), client.request(tool("loud")));
    assert!(quiet.is_ok(), "{quiet:?}");
    assert!(matches!(failure(loud), (ProtocolError::Flooded(_), _)));
}

#[tokio::test(start_paused = true)]
async fn a_request_without_answer_fails_after_its_time_and_is_taken_back() {
    let (seen, mut cancelled) = mpsc::unbounded_channel();
    let client = connect_old(move |_, heard| drop(seen.send(heard))).await;
    let begun = Instant::now();
    let answer = client.request(tool("t").within(Duration::from_secs(5))).await;
    let (error, delivery) = failure(answer);
    assert!(matches!(error, ProtocolError::Late(_)), "{error}");
    assert_eq!((delivery, begun.elapsed().as_secs()), (Delivery::MayHaveHappened, 5));
    let call = cancelled.recv().await.unwrap();
    let taken_back = cancelled.recv().await.unwrap();
    assert_eq!(taken_back.method, "notifications/cancelled");
    assert_eq!(taken_back.params()["requestId"], call.id);
}

/// A server that reports progress every four seconds, `reports` times, and then answers.
async fn with_progress(reports: usize) -> (Result<Box<RawValue>, RequestError>, u64) {
    let connected = connect(options(), move |mut far: Far| async move {
        while let Some(heard) = hear(&mut far).await {
            match heard.method.as_str() {
                "server/discover" => refuse(&far, heard.id, -32601, Value::Null),
                "initialize" => answer(&far, heard.id, greeting("2025-11-25")),
                "tools/call" => {
                    for step in 0..reports {
                        tokio::time::sleep(Duration::from_secs(4)).await;
                        let token = &heard.params()["_meta"]["progressToken"];
                        notice(&far, "notifications/progress", json!({ "progressToken": token, "progress": step }));
                    }
                    answer(&far, heard.id, json!({}));
                }
                _ => {}
            }
        }
    });
    let client = connected.await.unwrap();
    let begun = Instant::now();
    let answer = client.request(tool("t").within(Duration::from_secs(5))).await;
    (answer, begun.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn progress_restarts_the_time_limit_but_not_for_ever() {
    let (answer, seconds) = with_progress(5).await;
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(seconds, 20);

    let (answer, seconds) = with_progress(1000).await;
    assert!(matches!(failure(answer).0, ProtocolError::Late(_)));
    assert_eq!(seconds, 50);
}

#[tokio::test]
async fn what_is_no_longer_wanted_is_cancelled_and_its_late_answer_counts_for_nothing() {
    let (seen, mut heard) = mpsc::unbounded_channel();
    let late = Arc::new(Mutex::new(Vec::new()));
    let client = connect_old(move |far, message| {
        match message.params()["name"].as_str() {
            Some("slow") => late.lock().push(message.id),
            Some("last") => {
                late.lock().drain(..).for_each(|id| answer(far, id, json!({})));
                answer(far, message.id, json!({}));
            }
            _ => {}
        }
        let _ = seen.send(message);
    });
    let client = client.await;
    for _ in 0..150 {
        tokio::select! {
            biased;
            answer = client.request(tool("slow")) => panic!("{answer:?}"),
            message = heard.recv() => assert_eq!(message.unwrap().method, "tools/call"),
        }
        let taken_back = heard.recv().await.unwrap();
        assert_eq!(taken_back.method, "notifications/cancelled");
    }
    client.request(tool("last")).await.unwrap();
}

#[tokio::test]
async fn over_http_the_new_era_cancels_by_hanging_up() {
    let connector = MemoryConnector::new(Tasks::new(), Streams::Separate, |mut far: Far| async move {
        let probe = hear(&mut far).await.unwrap();
        answer(&far, probe.id, discovery(json!({})));
        let call = hear(&mut far).await.unwrap();
        assert_eq!(far.abandoned().await, Some(call.id));
        let next = hear(&mut far).await.unwrap();
        answer(&far, next.id, json!({ "then": next.method }));
        drop(hear(&mut far).await);
    });
    let client = Client::connect(connector, options()).await.unwrap();
    let mut call = Box::pin(client.request(tool("t")));
    assert!(futures_util::poll!(&mut call).is_pending());
    drop(call);
    let next = client.request(Ask::new("tools/list")).await.unwrap();
    assert_eq!(next.get(), r#"{"then":"tools/list"}"#);
}

#[tokio::test]
async fn when_the_server_ends_all_in_flight_hear_that_it_may_have_happened() {
    let client = connect(options(), |mut far: Far| async move {
        while let Some(heard) = hear(&mut far).await {
            match heard.method.as_str() {
                "server/discover" => answer(&far, heard.id, discovery(json!({}))),
                _ if heard.params()["name"] == "last" => return,
                _ => {}
            }
        }
    });
    let client = client.await.unwrap();
    let (first, last) = tokio::join!(client.request(tool("first")), client.request(tool("last")));
    for answer in [first, last] {
        let failed = answer.unwrap_err();
        assert!(matches!(failed.error, UpstreamError::Transport(TransportError::Closed(_))), "{failed}");
        assert_eq!(failed.delivery, Delivery::MayHaveHappened);
    }
    assert!(matches!(client.closed().await, TransportError::Closed(_)));
    assert!(!client.is_connected());
    assert_eq!(client.request(tool("next")).await.unwrap_err().delivery, Delivery::NotSent);
}

#[tokio::test]
async fn a_lost_session_tells_apart_who_was_turned_away_and_who_may_have_been_served() {
    let client = connect_old(|far, heard| {
        if heard.params()["name"] == "turned away" {
            far.fail(heard.id, TransportError::SessionLost);
            far.end(TransportError::SessionLost);
        }
    });
    let client = client.await;
    let (served, away) = tokio::join!(client.request(tool("served")), client.request(tool("turned away")));
    assert_eq!(served.unwrap_err().delivery, Delivery::MayHaveHappened);
    assert_eq!(away.unwrap_err().delivery, Delivery::NotSent);
    assert!(matches!(client.closed().await, TransportError::SessionLost));
}

#[tokio::test]
async fn a_message_that_did_not_come_through_fails_those_who_wait_and_not_the_connection() {
    let client = connect_old(|far, heard| match heard.params()["name"].as_str() {
        Some("huge") => far.lose(TransportError::TooLarge { limit: 10_000_000 }),
        _ => answer(far, heard.id, json!({})),
    });
    let client = client.await;
    let failed = client.request(tool("huge")).await.unwrap_err();
    assert!(matches!(failed.error, UpstreamError::Transport(TransportError::TooLarge { .. })), "{failed}");
    assert_eq!(failed.delivery, Delivery::MayHaveHappened);
    client.request(tool("small")).await.unwrap();
}

#[tokio::test]
async fn a_result_that_is_no_object_is_nonsense() {
    for result in [json!(null), json!([]), json!("text"), json!(5)] {
        let client = connect_old(move |far, heard| answer(far, heard.id, result.clone())).await;
        let (error, delivery) = failure(client.request(tool("t")).await);
        assert!(matches!(error, ProtocolError::Nonsense(_)), "{error}");
        assert_eq!(delivery, Delivery::Answered);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_neither_result_nor_error_fails_its_request_at_once() {
    let empty = |far: &Far, heard: Heard| far.say(json!({ "jsonrpc": "2.0", "id": heard.id }).to_string());
    let client = connect_old(empty).await;
    let asked = Instant::now();
    let (error, delivery) = failure(client.request(tool("t")).await);
    assert!(error.to_string().contains("neither a result nor an error"), "{error}");
    assert_eq!((delivery, asked.elapsed()), (Delivery::Answered, Duration::ZERO));
}

#[tokio::test]
async fn a_second_answer_to_one_request_is_unrelated_to_the_next() {
    let client = connect_old(|far, heard| {
        answer(far, heard.id, json!({ "first": heard.id }));
        answer(far, heard.id, json!({ "second": heard.id }));
    });
    let client = client.await;
    for _ in 0..3 {
        assert!(client.request(tool("t")).await.unwrap().get().contains("first"));
    }
}

#[tokio::test]
async fn nothing_is_left_when_the_last_handle_goes() {
    let (ended, mut ends) = mpsc::unbounded_channel();
    let tasks = Tasks::new();
    let server_tasks = Tasks::new();
    let connector = MemoryConnector::new(server_tasks.clone(), Streams::Shared, move |far| {
        let ended = ended.clone();
        async move {
            new_era(far, json!({ "tools": { "listChanged": true } }), |_, _| ()).await;
            let _ = ended.send(());
        }
    });
    let client = Client::connect(connector, crate::upstream::client::Options::new(tasks.clone())).await.unwrap();
    drop(client);
    ends.recv().await.unwrap();
    assert!(tasks.finish(Duration::from_secs(10)).await);
    assert!(server_tasks.finish(Duration::from_secs(10)).await);
}

#[tokio::test]
async fn closing_waits_for_the_server_and_fails_what_is_under_way() {
    let client = connect_old(|_, _| ()).await;
    let call = client.request(tool("t"));
    let (answer, ()) = tokio::join!(call, client.close());
    assert!(answer.is_err());
    assert!(!client.is_connected());
    assert!(client.notify("notifications/roots/list_changed", "{}").await.is_err());
}
