//! A tool that panics: the caller gets an incident number, the log gets the rest, everyone else gets on.

use serde_json::{Value, json};

use crate::support::Hub;

/// The number that the reply names.
fn incident(result: &Value) -> String {
    assert_eq!(result["isError"], true, "{result}");
    assert_eq!(result["structuredContent"]["error"]["kind"], "internal", "{result}");
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(!text.contains("test_panic was called"), "{text}");
    text.split_once("incident ").unwrap().1.lines().next().unwrap().to_owned()
}

#[tokio::test]
async fn a_panic_is_an_internal_error_with_an_incident_number_that_the_log_has_too() {
    let hub = Hub::start().conformance().await;
    let [legacy, modern] = hub.both(&hub.key).await;
    let mut sse = hub.sse(&hub.key).await;
    let mut numbers = Vec::new();
    for _ in 0..2 {
        for client in [&legacy, &modern] {
            numbers.push(incident(&client.call("test_panic", json!({})).await));
            client.does("echo", json!({ "message": "still here" })).await;
        }
        let answer = sse.request("tools/call", json!({ "name": "test_panic", "arguments": {} })).await;
        numbers.push(incident(&answer["result"]));
        let echoed =
            sse.request("tools/call", json!({ "name": "echo", "arguments": { "message": "still here" } })).await;
        assert_eq!(echoed["result"]["isError"], false);
    }
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), 6);
    for number in &numbers {
        let said = hub.says(number).await;
        let line = said.lines().find(|line| line.contains(number)).unwrap();
        assert!(line.contains("the fixture test_panic was called"), "{line}");
    }
    let panicked = |rows: &[crate::support::AuditRow]| {
        rows.iter().filter(|row| row.is("call test_panic allowed internal")).count()
    };
    let rows = hub.audit_reaches(|rows| panicked(rows) == 6).await;
    let recorded: Vec<&str> = rows.iter().filter_map(|row| row.detail.as_deref()).collect();
    assert!(numbers.iter().all(|number| recorded.iter().any(|detail| detail.contains(number))), "{recorded:?}");
}

#[tokio::test]
async fn a_panic_does_not_disturb_calls_that_run_beside_it() {
    let hub = Hub::start().conformance().await;
    let client = hub.legacy(&hub.key).await;
    let sleeping = client.call("test_sleep", json!({ "seconds": 0.5 }));
    let panicking = async {
        for _ in 0..5 {
            incident(&client.call("test_panic", json!({})).await);
        }
    };
    let (slept, ()) = tokio::join!(sleeping, panicking);
    assert_eq!(slept["isError"], false, "{slept}");
}
