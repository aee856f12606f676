//! What ends a question or a yes: a lease that runs out, a key that is revoked or lowered, a session that is over.

use serde_json::{Value, json};

use crate::asking::{status, touch, why};
use crate::support::{Client, Hub, Wire, decided, until, within};

/// A write that waits for its answer, and the question.
async fn waiting(hub: &Hub, client: &Client) -> (Wire, Value) {
    let message = client.message("tools/call", json!({ "name": "run_command", "arguments": touch(hub, "x") }));
    let mut wire = client.start(&message).await;
    wire.head().await;
    let question = wire.next().await;
    assert_eq!(question["method"], "elicitation/create", "{question}");
    (wire, question)
}

/// What the call is answered with, after anything else that is said.
async fn ends(wire: &mut Wire) -> Value {
    let ended = async {
        loop {
            let heard = wire.next().await;
            if heard.get("method").is_none() {
                return heard["result"].clone();
            }
        }
    };
    within("the end of the call", ended).await
}

async fn code(hub: &Hub) -> String {
    let listed: Value = serde_json::from_str(&hub.nexus(&["pending", "--json"]).await.ok()).unwrap();
    listed[0]["code"].as_str().unwrap_or_else(|| panic!("{listed}")).to_owned()
}

#[tokio::test]
async fn a_yes_ends_with_its_lease_on_a_connection_that_stays() {
    let hub = Hub::start()
        .yaml("server: { limits: { lease_idle: 1s } }")
        .key("leased", "level: trusted, session: lease")
        .await;
    let key = crate::support::secret("leased");
    let client = hub.legacy_asked(&key).await;
    let (result, asked) = client.call_answering("run_command", touch(&hub, "a"), &decided("session")).await;
    assert_eq!((&result["isError"], asked.len()), (&json!(false), 1), "{result}");
    let (result, asked) = client.call_answering("run_command", touch(&hub, "b"), &decided("no")).await;
    assert_eq!((&result["isError"], asked.len()), (&json!(false), 0), "{result}");
    let began = std::time::Instant::now();
    until("the lease has run out", || began.elapsed().as_millis() > 1_200).await;
    let (result, asked) = client.call_answering("run_command", touch(&hub, "c"), &decided("no")).await;
    assert_eq!((why(&result), asked.len()), ("denied", 1), "{result}");
    assert!(!hub.path("c").exists());
}

#[tokio::test]
async fn a_revoked_key_ends_the_call_that_waits_and_its_question() {
    let hub = Hub::start().await;
    let key = hub.nexus(&["key", "new", "guest"]).await.ok().trim().to_owned();
    let client = hub.legacy_asked(&key).await;
    let (mut wire, _) = waiting(&hub, &client).await;
    let code = code(&hub).await;
    hub.nexus(&["key", "revoke", "guest"]).await.ok();
    let ended = ends(&mut wire).await;
    assert_eq!(ended["isError"], true, "{ended}");
    assert!(hub.nexus(&["pending"]).await.stderr.contains("Nothing waits."));
    let ran = hub.nexus(&["approve", &code]).await;
    assert!(ran.code == Some(1) && ran.stderr.contains("is over"), "{ran:?}");
    assert!(!hub.path("x").exists());
}

#[tokio::test]
async fn a_modern_question_of_a_revoked_key_cannot_be_approved() {
    let hub = Hub::start().await;
    let key = hub.nexus(&["key", "new", "guest"]).await.ok().trim().to_owned();
    assert_eq!(status(&hub.modern(&key).call("run_command", touch(&hub, "x")).await), "approval_required");
    let code = code(&hub).await;
    hub.nexus(&["key", "revoke", "guest"]).await.ok();
    hub.audit_reaches(|rows| rows.iter().any(|row| row.detail.as_deref() == Some("its key is gone"))).await;
    let ran = hub.nexus(&["approve", &code]).await;
    assert!(ran.code == Some(1) && ran.stderr.contains("is over"), "{ran:?}");
}

#[tokio::test]
async fn an_ended_session_ends_the_call_that_waits_and_its_question() {
    let hub = Hub::start().await;
    let client = hub.legacy_asked(&hub.key).await;
    let (mut wire, _) = waiting(&hub, &client).await;
    let code = code(&hub).await;
    let mut over = client.ask(&Value::Null);
    over.method = "DELETE".to_owned();
    hub.ask(&over).await;
    assert_eq!(ends(&mut wire).await["isError"], true);
    assert!(hub.nexus(&["pending"]).await.stderr.contains("Nothing waits."));
    let ran = hub.nexus(&["approve", &code]).await;
    assert!(ran.code == Some(1) && ran.stderr.contains("is over"), "{ran:?}");
    assert!(!hub.path("x").exists());
}

#[tokio::test]
async fn a_yes_to_a_key_that_was_lowered_meanwhile_is_refused() {
    let hub = Hub::start().await;
    let key = hub.nexus(&["key", "new", "guest"]).await.ok().trim().to_owned();
    let client = hub.legacy_asked(&key).await;
    let (mut wire, question) = waiting(&hub, &client).await;
    hub.nexus(&["key", "level", "guest", "sandboxed"]).await.ok();
    client.answer(&question["id"], &decided("session")).await;
    let refused = ends(&mut wire).await;
    assert_eq!(why(&refused), "level_too_low", "{refused}");
    assert!(!hub.path("x").exists());
    hub.audit_reaches(|rows| rows.iter().all(|row| row.event != "approved")).await;
}
