//! Changes in the new era: subscriptions that are kept open.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::bench::*;

fn changing() -> Value {
    json!({ "tools": { "listChanged": true }, "prompts": {}, "resources": { "listChanged": true, "subscribe": true } })
}

fn accept(far: &crate::upstream::transport::memory::Far, heard: &Heard) {
    let meta = json!({ "io.modelcontextprotocol/subscriptionId": heard.id });
    let params = json!({ "notifications": heard.params()["notifications"], "_meta": meta });
    notice(far, "notifications/subscriptions/acknowledged", params);
}

#[tokio::test]
async fn changes_are_asked_for_where_the_server_tells_of_them() {
    let host = Arc::new(Diary::default());
    let (seen, mut asked) = mpsc::unbounded_channel();
    let client = connect(options_with(&host), move |far| {
        let seen = seen.clone();
        new_era(far, changing(), move |far, heard| {
            accept(far, &heard);
            notice(far, "notifications/tools/list_changed", json!({}));
            let _ = seen.send(heard);
        })
    });
    let client = client.await.unwrap();
    let listen = asked.recv().await.unwrap();
    assert_eq!(listen.method, "subscriptions/listen");
    let expected = json!({ "toolsListChanged": true, "resourcesListChanged": true });
    assert_eq!(listen.params()["notifications"], expected);
    assert!(listen.params()["_meta"]["io.modelcontextprotocol/protocolVersion"].is_string());
    assert_eq!(host.has(1).await, ["changed tools"]);
    // It is no request that somebody waits for.
    assert_eq!(client.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_ends_is_opened_again_and_what_was_missed_is_assumed() {
    check(|far, heard| answer(far, heard.id, json!({ "resultType": "complete" }))).await;
    check(|far, heard| notice(far, "notifications/cancelled", json!({ "requestId": heard.id }))).await;
    check(|far, heard| refuse(far, heard.id, -32603, Value::Null)).await;

    async fn check(end: fn(&crate::upstream::transport::memory::Far, &Heard)) {
        let host = Arc::new(Diary::default());
        let opened = Arc::new(Mutex::new(0));
        let count = opened.clone();
        let client = connect(options_with(&host), move |far| {
            let count = count.clone();
            new_era(far, changing(), move |far, heard| {
                accept(far, &heard);
                let mut count = count.lock();
                *count += 1;
                if *count == 1 {
                    end(far, &heard);
                }
            })
        });
        let client = client.await.unwrap();
        assert_eq!(host.has(2).await, ["changed tools", "changed resources"]);
        assert_eq!(*opened.lock(), 2);
        assert!(client.is_connected());
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_knows_no_subscriptions_is_asked_once() {
    let (seen, mut asked) = mpsc::unbounded_channel();
    let client = connect(options(), move |far| {
        let seen = seen.clone();
        new_era(far, changing(), move |far, heard| {
            refuse(far, heard.id, -32601, Value::Null);
            let _ = seen.send(heard.method);
        })
    });
    let client = client.await.unwrap();
    assert_eq!(asked.recv().await.as_deref(), Some("subscriptions/listen"));
    let waited = tokio::time::timeout(std::time::Duration::from_secs(3600), asked.recv()).await;
    assert!(waited.is_err(), "{waited:?}");
    assert!(client.is_connected());
}

#[tokio::test]
async fn resources_are_followed_and_left() {
    let host = Arc::new(Diary::default());
    let (seen, mut asked) = mpsc::unbounded_channel();
    let client = connect(options_with(&host), move |far| {
        let seen = seen.clone();
        new_era(far, json!({ "resources": { "subscribe": true } }), move |far, heard| {
            if heard.method == "subscriptions/listen" {
                accept(far, &heard);
                notice(far, "notifications/resources/updated", json!({ "uri": "a://b" }));
            }
            let _ = seen.send((heard.method.clone(), heard.message["params"].clone()));
        })
    });
    let client = client.await.unwrap();
    client.subscribe("a://b").await.unwrap();
    let (method, params) = asked.recv().await.unwrap();
    assert_eq!(method, "subscriptions/listen");
    assert_eq!(params["notifications"], json!({ "resourceSubscriptions": ["a://b"] }));
    assert_eq!(host.has(1).await, ["updated a://b"]);

    client.unsubscribe("a://b").await.unwrap();
    assert_eq!(asked.recv().await.unwrap().0, "notifications/cancelled");
}
