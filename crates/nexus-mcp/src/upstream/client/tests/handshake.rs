//! Finding the era, whatever the server does instead of answering.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use nexus_core::session::Era;
use nexus_core::tasks::Tasks;

use super::bench::*;
use crate::upstream::client::{Client, Options};
use crate::upstream::config::EraChoice;
use crate::upstream::error::{ProtocolError, TransportError, UpstreamError};
use crate::upstream::transport::memory::{Far, MemoryConnector, Streams};

/// What it came to, in a few words.
fn verdict(connected: &Result<Client, UpstreamError>) -> String {
    match connected {
        Ok(client) => format!("{} {}", client.server().era.as_str(), client.server().protocol_version),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn the_new_era_is_taken_where_it_is_offered() {
    let client = connect(options(), |far| new_era(far, json!({}), |_, _| ())).await.unwrap();
    assert_eq!((client.server().era, client.server().name.as_str()), (Era::Modern, "new"));
    assert!(client.is_connected());
}

#[tokio::test]
async fn any_error_to_the_probe_means_the_old_era() {
    for code in [-32601, -32602, -32600, -32603, -32000, 0, 4711] {
        let connected = connect(options(), move |mut far: Far| async move {
            let probe = hear(&mut far).await.unwrap();
            assert_eq!(probe.method, "server/discover");
            refuse(&far, probe.id, code, Value::Null);
            old_era(far, |_, _| ()).await;
        });
        assert_eq!(verdict(&connected.await), "legacy 2025-11-25", "{code}");
    }
}

#[tokio::test]
async fn an_answer_to_the_probe_that_is_no_discovery_means_the_old_era() {
    for result in [json!({}), json!({ "supportedVersions": "all" }), json!([]), json!({ "tools": [] })] {
        let connected = connect(options(), move |mut far: Far| {
            let result = result.clone();
            async move {
                let probe = hear(&mut far).await.unwrap();
                answer(&far, probe.id, result);
                old_era(far, |_, _| ()).await;
            }
        });
        assert_eq!(verdict(&connected.await), "legacy 2025-11-25");
    }
}

#[tokio::test]
async fn versions_the_server_names_are_used_when_they_are_ours() {
    check(json!(["2025-06-18", "2024-11-05"]), "legacy 2025-06-18").await;
    check(json!(["2024-11-05"]), "legacy 2024-11-05").await;
    check(json!(["2099-01-01"]), "the server speaks none of our protocol versions, only 2099-01-01").await;
    check(json!([]), "the server speaks none of our protocol versions, only ").await;
    check(json!(null), "legacy 2025-11-25").await;

    async fn check(supported: Value, expected: &str) {
        let data = json!({ "supported": supported });
        let connected = connect(options(), move |mut far: Far| {
            let data = data.clone();
            async move {
                while let Some(heard) = hear(&mut far).await {
                    match heard.method.as_str() {
                        "server/discover" => refuse(&far, heard.id, -32022, data.clone()),
                        "initialize" => {
                            let asked = heard.params()["protocolVersion"].as_str().unwrap();
                            answer(&far, heard.id, greeting(asked));
                        }
                        _ => {}
                    }
                }
            }
        });
        assert_eq!(verdict(&connected.await), expected);
    }
}

#[tokio::test]
async fn a_server_that_refuses_the_version_it_lists_is_asked_once_more() {
    check(1, "modern 2026-07-28").await;
    check(2, "the server speaks none of our protocol versions, only 2026-07-28").await;

    async fn check(refusals: usize, expected: &str) {
        let connected = connect(options(), move |mut far: Far| async move {
            for _ in 0..refusals {
                let probe = hear(&mut far).await.unwrap();
                refuse(&far, probe.id, -32022, json!({ "supported": ["2026-07-28"] }));
            }
            new_era(far, json!({}), |_, _| ()).await;
        });
        assert_eq!(verdict(&connected.await), expected);
    }
}

#[tokio::test]
async fn a_server_that_ends_on_the_probe_is_opened_again_in_the_old_way() {
    let opened = Arc::new(AtomicUsize::new(0));
    let count = opened.clone();
    let connected = connect(options(), move |mut far: Far| {
        let count = count.clone();
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            let first = hear(&mut far).await.unwrap();
            if first.method == "initialize" {
                answer(&far, first.id, greeting("2025-11-25"));
                old_era(far, |_, _| ()).await;
            }
        }
    });
    assert_eq!(verdict(&connected.await), "legacy 2025-11-25");
    assert_eq!(opened.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_server_that_ends_whatever_it_is_told_is_not_opened_for_ever() {
    let opened = Arc::new(AtomicUsize::new(0));
    let count = opened.clone();
    let connected = connect(options(), move |mut far: Far| {
        count.fetch_add(1, Ordering::SeqCst);
        async move { drop(hear(&mut far).await) }
    });
    assert_eq!(verdict(&connected.await), "the connection is closed: the server has ended");
    assert_eq!(opened.load(Ordering::SeqCst), 2);
}

/// The trap of `npx`: it downloads for twelve seconds, and then the server answers all that it was sent meanwhile.
#[tokio::test(start_paused = true)]
async fn a_program_that_starts_slowly_is_connected_on_the_first_try() {
    check(json!(null), "legacy 2025-11-25").await;
    check(discovery(json!({})), "modern 2026-07-28").await;

    async fn check(discovered: Value, expected: &str) {
        let opened = Arc::new(AtomicUsize::new(0));
        let count = opened.clone();
        let connected = connect(options(), move |mut far: Far| {
            count.fetch_add(1, Ordering::SeqCst);
            let discovered = discovered.clone();
            async move {
                tokio::time::sleep(Duration::from_secs(12)).await;
                let probe = hear(&mut far).await.unwrap();
                match &discovered {
                    Value::Null => refuse(&far, probe.id, -32601, Value::Null),
                    discovered => answer(&far, probe.id, discovered.clone()),
                }
                old_era(far, |_, _| ()).await;
            }
        });
        assert_eq!(verdict(&connected.await), expected);
        assert_eq!(opened.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ignores_the_probe_is_greeted_after_ten_seconds() {
    let begun = Instant::now();
    let client = connect(options(), |mut far: Far| async move {
        hear(&mut far).await.unwrap();
        old_era(far, |far, heard| answer(far, heard.id, json!({}))).await;
    });
    let client = client.await.unwrap();
    assert_eq!(client.server().era, Era::Legacy);
    assert_eq!(begun.elapsed().as_secs(), 10);
    client.ping().await.unwrap();
}

/// It refuses the old greeting first and answers the probe later.
#[tokio::test(start_paused = true)]
async fn a_slow_server_of_the_new_era_may_refuse_the_old_greeting() {
    let connected = connect(options(), |mut far: Far| async move {
        let probe = hear(&mut far).await.unwrap();
        let hello = hear(&mut far).await.unwrap();
        assert_eq!(hello.method, "initialize");
        refuse(&far, hello.id, -32601, Value::Null);
        answer(&far, probe.id, discovery(json!({})));
        drop(hear(&mut far).await);
    });
    assert_eq!(verdict(&connected.await), "modern 2026-07-28");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up_after_a_minute() {
    let begun = Instant::now();
    let connected = connect(options(), |mut far: Far| async move { while hear(&mut far).await.is_some() {} }).await;
    assert!(matches!(connected, Err(UpstreamError::Protocol(ProtocolError::Late(_)))), "{connected:?}");
    assert_eq!(begun.elapsed().as_secs(), 60);
}

#[tokio::test]
async fn a_version_that_nobody_knows_is_refused() {
    let legacy = Options { era: EraChoice::Legacy, ..options() };
    let connected = connect(legacy, |mut far: Far| async move {
        let hello = hear(&mut far).await.unwrap();
        answer(&far, hello.id, greeting("1999-\n\u{1b}[31m12"));
        drop(hear(&mut far).await);
    });
    assert_eq!(verdict(&connected.await), "the server speaks none of our protocol versions, only 1999- 12");
}

#[tokio::test]
async fn what_was_remembered_is_tried_first_and_believed_no_further() {
    check(Some(Era::Legacy), &["initialize"], "legacy 2025-11-25", Some("initialize")).await;
    check(Some(Era::Legacy), &["initialize", "server/discover"], "modern 2026-07-28", Some("server/discover")).await;
    check(Some(Era::Modern), &["server/discover"], "modern 2026-07-28", Some("server/discover")).await;
    check(None, &["server/discover", "initialize"], "legacy 2025-11-25", Some("initialize")).await;

    async fn check(remembered: Option<Era>, asked: &[&str], expected: &str, knows: Option<&'static str>) {
        let methods = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let seen = methods.clone();
        let connected = connect(Options { remembered, ..options() }, move |mut far: Far| {
            let seen = seen.clone();
            async move {
                while let Some(heard) = hear(&mut far).await {
                    match heard.method.as_str() {
                        "notifications/initialized" => continue,
                        method if Some(method) != knows => refuse(&far, heard.id, -32601, Value::Null),
                        "initialize" => answer(&far, heard.id, greeting("2025-11-25")),
                        _ => answer(&far, heard.id, discovery(json!({}))),
                    }
                    seen.lock().push(heard.method);
                }
            }
        });
        assert_eq!(verdict(&connected.await), expected);
        assert_eq!(*methods.lock(), asked);
    }
}

#[tokio::test]
async fn over_http_every_status_but_a_question_for_credentials_means_the_old_era() {
    for status in [400, 404, 405, 415, 500] {
        let http = TransportError::Http { url: "http://x".into(), status, body: "no".into() };
        assert_eq!(verdict(&over_http(http).await), "legacy 2025-11-25", "{status}");
    }
    let unauthorized = TransportError::Unauthorized { url: "http://x".into(), status: 401, challenge: None };
    assert_eq!(verdict(&over_http(unauthorized).await), "http://x wants to know who asks (HTTP 401)");
    let unreachable = TransportError::Unreachable { url: "http://x".into(), reason: "refused".into() };
    assert_eq!(verdict(&over_http(unreachable).await), "http://x does not answer: refused");

    /// A server of the old era whose transport fails the probe.
    async fn over_http(error: TransportError) -> Result<Client, UpstreamError> {
        let connector = MemoryConnector::new(Tasks::new(), Streams::Separate, move |mut far: Far| {
            let error = error.clone();
            async move {
                let probe = hear(&mut far).await.unwrap();
                far.fail(probe.id, error);
                old_era(far, |_, _| ()).await;
            }
        });
        Client::connect(connector, options()).await
    }
}

/// A server that cannot read a request does not know its id either; the stream says which it was.
#[tokio::test]
async fn an_error_without_an_id_answers_the_request_on_whose_stream_it_comes() {
    let connector = MemoryConnector::new(Tasks::new(), Streams::Separate, |mut far: Far| async move {
        let probe = hear(&mut far).await.unwrap();
        far.say_within(probe.id, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"?"}}"#);
        old_era(far, |_, _| ()).await;
    });
    assert_eq!(verdict(&Client::connect(connector, options()).await), "legacy 2025-11-25");
}

#[tokio::test]
async fn one_era_is_enough_when_it_is_asked_for() {
    let modern = Options { era: EraChoice::Modern, ..options() };
    let connected = connect(modern, |far| old_era(far, |_, _| ())).await;
    assert_eq!(verdict(&connected), "the server answered with an error: no (-32601)");

    let legacy = Options { era: EraChoice::Legacy, ..options() };
    let connected = connect(legacy, |mut far: Far| async move {
        let hello = hear(&mut far).await.unwrap();
        assert_eq!((hello.method.as_str(), &hello.params()["_meta"]), ("initialize", &Value::Null));
        assert_eq!(hello.params()["clientInfo"]["name"], "nexus");
        answer(&far, hello.id, greeting("2024-11-05"));
        assert_eq!(hear(&mut far).await.unwrap().method, "notifications/initialized");
        drop(hear(&mut far).await);
    });
    assert_eq!(verdict(&connected.await), "legacy 2024-11-05");
}
