//! A human's yes, in both eras and at every door: who is asked, what they read, and what each answer brings about.

use insta::assert_json_snapshot;
use serde_json::{Value, json};

use crate::support::{Client, Hub, decided, forms, retried, secret};

/// A command that leaves a trace, and whether it has.
pub fn touch(hub: &Hub, name: &str) -> Value {
    json!({ "cmd": format!("touch {}", hub.path(name).display()) })
}

pub fn status(result: &Value) -> &str {
    result["structuredContent"]["status"].as_str().unwrap_or_default()
}

pub fn why(result: &Value) -> &str {
    result["structuredContent"]["error"]["why"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_yes_runs_the_very_call_and_once_means_once() {
    let hub = Hub::start().await;
    for (era, client) in hub.both_asked(&hub.key).await.into_iter().enumerate() {
        let name = format!("once-{era}");
        let (result, asked) = client.call_answering("run_command", touch(&hub, &name), &decided("once")).await;
        assert_eq!((&result["isError"], asked.len()), (&json!(false), 1), "{result}");
        assert!(hub.path(&name).exists());
        let (_, asked) = client.call_answering("run_command", touch(&hub, &name), &decided("once")).await;
        assert_eq!(asked.len(), 1, "the next write asks again");
    }
    let rows = hub.audit_reaches(|rows| rows.iter().filter(|row| row.is("call run_command allowed ok")).count() == 4);
    let rows = rows.await;
    let allowed: Vec<_> = rows.iter().filter(|row| row.decision.as_deref() == Some("allowed")).collect();
    assert!(allowed.iter().all(|row| row.how.as_deref() == Some("elicited_once")), "{allowed:#?}");
}

#[tokio::test]
async fn a_yes_for_the_session_frees_its_later_writes() {
    let hub = Hub::start().await;
    for client in hub.both_asked(&hub.key).await {
        let (result, asked) = client.call_answering("run_command", touch(&hub, "a"), &decided("session")).await;
        assert_eq!((&result["isError"], asked.len()), (&json!(false), 1), "{result}");
        let (_, asked) = client.call_answering("run_command", touch(&hub, "b"), &decided("no")).await;
        assert!(asked.is_empty() && hub.path("b").exists());
        assert_eq!(client.does("get_session_info", json!({})).await["writes"], "approved");

        client.does("revoke_writes", json!({})).await;
        let (result, asked) = client.call_answering("run_command", touch(&hub, "c"), &decided("no")).await;
        assert_eq!((why(&result), asked.len()), ("denied", 1), "{result}");
        assert!(!hub.path("c").exists());
    }
    hub.audit_reaches(|rows| rows.iter().filter(|row| row.event == "approved").count() == 2).await;
}

#[tokio::test]
async fn the_question_says_in_one_line_what_would_happen() {
    let hub = Hub::start().await;
    for client in hub.both_asked(&hub.key).await {
        let hostile = "echo »\nAllow this? read_file on local: «nothing";
        let command = json!({ "cmd": format!("{hostile} --password=hunter2hunter2 \u{1b}[31m\u{202e}") });
        let (_, asked) = client.call_answering("run_command", command, &decided("no")).await;
        let message = asked[0]["message"].as_str().unwrap();
        assert!(message.starts_with("Allow this? run_command on local: «"), "{message}");
        assert_eq!((message.matches('«').count(), message.matches('»').count(), message.lines().count()), (1, 1, 1));
        assert!(!message.contains("hunter2") && !message.contains('\u{202e}'), "{message}");
        insta::allow_duplicates! {
        assert_json_snapshot!(asked[0]["requestedSchema"], @r#"
        {
          "type": "object",
          "properties": {
            "decision": {
              "type": "string",
              "title": "Decision",
              "description": "What you choose is recorded.",
              "enum": [
                "once",
                "session",
                "no"
              ],
              "enumNames": [
                "Yes, this once",
                "Yes, and every write of this session",
                "No"
              ]
            }
          },
          "required": [
            "decision"
          ]
        }
        "#);
        }
    }
}

#[tokio::test]
async fn every_other_answer_is_a_no_and_says_which() {
    let hub = Hub::start().await;
    for client in hub.both_asked(&hub.key).await {
        for answer in [
            decided("no"),
            decided("maybe"),
            json!({ "action": "accept" }),
            json!({ "action": "accept", "content": { "decision": true } }),
            json!({ "action": "decline" }),
            json!({ "action": "wave" }),
            json!(null),
        ] {
            let (result, _) = client.call_answering("run_command", touch(&hub, "x"), &answer).await;
            assert_eq!((&result["isError"], why(&result)), (&json!(true), "denied"), "{answer}: {result}");
        }
        let (result, _) = client.call_answering("run_command", touch(&hub, "x"), &json!({ "action": "cancel" })).await;
        let code = result["structuredContent"]["error"]["code"].as_str().unwrap();
        assert_eq!(why(&result), "denied");
        assert!(result["content"][0]["text"].as_str().unwrap().contains(&format!("nexus approve {code}")), "{result}");
        assert!(!hub.path("x").exists());
        // Nobody saw it: the operator may still allow it.
        assert!(hub.nexus(&["approve", code, "--once"]).await.stderr.contains("Approved once: run_command on local"));
        let (result, asked) = client.call_answering("run_command", touch(&hub, "x"), &decided("no")).await;
        assert_eq!((&result["isError"], asked.len()), (&json!(false), 0), "{result}");
        std::fs::remove_file(hub.path("x")).unwrap();
    }
    let client = hub.legacy_asked(&hub.key).await;
    let error = json!({ "error": { "code": -32601, "message": "cannot" } });
    let (result, _) = client.call_answering("run_command", touch(&hub, "x"), &error).await;
    assert_eq!(why(&result), "unavailable", "{result}");
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_gets_the_pending_reply_and_approve_writes_is_the_yes() {
    let hub = Hub::start().await;
    let old = Client::able(&hub, &hub.key, "2025-03-26", forms()).await;
    let mut url_only = hub.modern(&hub.key);
    url_only.capabilities = json!({ "elicitation": { "url": {} } });
    let [legacy, modern] = hub.both(&hub.key).await;
    for client in [legacy, old, modern, url_only] {
        let result = client.call("run_command", touch(&hub, "x")).await;
        assert_eq!(status(&result), "approval_required", "{result}");
        let told = &result["structuredContent"];
        assert!(told["how"].as_str().unwrap().contains("`approve_writes`"), "{told}");
        assert_eq!(client.call("run_command", touch(&hub, "x")).await["structuredContent"]["code"], told["code"]);

        let approved = client.does("approve_writes", json!({ "reason": "the test wants it" })).await;
        assert_eq!(approved["writes"], "approved");
        client.does("run_command", touch(&hub, "x")).await;
        client.does("run_command", touch(&hub, "y")).await;
        client.does("revoke_writes", json!({})).await;
        assert_eq!(status(&client.call("run_command", touch(&hub, "y")).await), "approval_required");
    }
    let row = hub.audit_has("call approve_writes allowed ok").await;
    assert_eq!(row.how.as_deref(), Some("chat"));
}

#[tokio::test]
async fn chat_mode_asks_no_client() {
    let hub = Hub::start().yaml("approval: { mode: chat }").await;
    for client in hub.both_asked(&hub.key).await {
        let (result, asked) = client.call_answering("run_command", touch(&hub, "x"), &decided("session")).await;
        assert_eq!((status(&result), asked.len()), ("approval_required", 0));
        client.does("approve_writes", json!({})).await;
        client.does("run_command", touch(&hub, "x")).await;
        client.does("revoke_writes", json!({})).await;
    }
}

#[tokio::test]
async fn approve_writes_asks_the_same_way_and_offers_no_once() {
    let hub = Hub::start().await;
    for client in hub.both_asked(&hub.key).await {
        let (result, asked) = client.call_answering("approve_writes", json!({}), &decided("session")).await;
        assert_eq!(result["structuredContent"]["writes"], "approved", "{result}");
        assert_eq!(asked[0]["requestedSchema"]["properties"]["decision"]["enum"], json!(["session", "no"]));
        client.does("run_command", touch(&hub, "x")).await;
        client.does("revoke_writes", json!({})).await;
        for answer in [decided("no"), decided("once"), json!({ "action": "decline" })] {
            let (result, _) = client.call_answering("approve_writes", json!({}), &answer).await;
            assert_eq!(why(&result), "denied", "{result}");
        }
        assert_eq!(client.does("get_session_info", json!({})).await["writes"], "locked");
    }
}

#[tokio::test]
async fn always_ask_asks_every_time_and_a_session_answer_is_none() {
    let hub = Hub::start().yaml("approval: { always_ask: [write_file] }").await;
    let note = json!({ "path": hub.path("note"), "content": "hi" });
    for client in hub.both_asked(&hub.key).await {
        client.call_answering("approve_writes", json!({}), &decided("session")).await;
        for _ in 0..2 {
            let (result, asked) = client.call_answering("write_file", note.clone(), &decided("once")).await;
            assert_eq!((&result["isError"], asked.len()), (&json!(false), 1), "{result}");
            assert_eq!(asked[0]["requestedSchema"]["properties"]["decision"]["enum"], json!(["once", "no"]));
        }
        let (result, _) = client.call_answering("write_file", note.clone(), &decided("session")).await;
        assert_eq!(why(&result), "denied", "{result}");
        client.does("run_command", json!({ "cmd": "true" })).await;
    }
    // In chat the code names the one call, also where the session is approved.
    let client = hub.modern(&hub.key);
    let asked = client.call("write_file", note.clone()).await;
    assert!(asked["structuredContent"]["how"].as_str().unwrap().contains("\"code\""), "{asked}");
    let code = asked["structuredContent"]["code"].clone();
    assert_eq!(client.does("approve_writes", json!({ "code": code })).await["writes"], "once");
    client.does("write_file", note.clone()).await;
    assert_eq!(status(&client.call("write_file", note).await), "approval_required");
}

#[tokio::test]
async fn an_answer_counts_once_unchanged_and_for_its_call_and_key_alone() {
    let hub = Hub::start().key("other", "").await;
    let client = hub.modern_asked(&hub.key);
    let params = json!({ "name": "run_command", "arguments": touch(&hub, "x") });
    let asked = client.send("tools/call", params.clone()).await.result().clone();
    let yes = retried(&params, &asked, &decided("session"));
    let state = asked["requestState"].as_str().unwrap();

    let changed = json!({ "name": "run_command", "arguments": touch(&hub, "y") });
    let mut tampered = yes.clone();
    tampered["requestState"] = format!("{}0", &state[..state.len() - 1]).into();
    let mut unsealed = yes.clone();
    unsealed["requestState"] = "nexus:".into();
    let stranger = hub.modern_asked(&secret("other"));
    let other_era = hub.legacy_asked(&hub.key).await;
    check(&client, retried(&changed, &asked, &decided("session")), "foreign").await;
    check(&client, retried(&json!({ "name": "get_session_info" }), &asked, &decided("once")), "foreign").await;
    check(&stranger, yes.clone(), "foreign").await;
    check(&client, tampered, "tampered").await;
    check(&client, unsealed, "tampered").await;
    check(&other_era, yes.clone(), "unsolicited").await;
    assert!(!hub.path("x").exists() && !hub.path("y").exists());

    let done = client.send("tools/call", yes.clone()).await.result().clone();
    assert_eq!(done["isError"], false, "{done}");
    check(&client, yes, "replayed").await;
    for told in ["foreign", "tampered", "unsolicited", "replayed"] {
        hub.audit_reaches(|rows| rows.iter().any(|row| row.how.as_deref() == Some(told))).await;
    }

    async fn check(client: &Client, params: Value, expected: &str) {
        let result = client.send("tools/call", params).await.result().clone();
        assert_eq!((&result["isError"], why(&result)), (&json!(true), expected), "{result}");
    }
}

#[tokio::test]
async fn answers_to_nothing_are_refused_and_recorded_also_for_reads() {
    let hub = Hub::start().key("robot", "level: yolo").await;
    for key in [hub.key.clone(), secret("robot")] {
        for client in hub.both_asked(&key).await {
            for tool in ["get_session_info", "run_command"] {
                let arguments = if tool == "run_command" { touch(&hub, "x") } else { json!({}) };
                for more in [
                    json!({ "inputResponses": { "approval": decided("session") } }),
                    json!({ "inputResponses": {} }),
                    json!({ "requestState": "anything" }),
                ] {
                    let mut params = json!({ "name": tool, "arguments": arguments });
                    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                    let result = client.send("tools/call", params).await.result().clone();
                    assert_eq!((&result["isError"], why(&result)), (&json!(true), "unsolicited"), "{result}");
                }
            }
        }
    }
    assert!(!hub.path("x").exists());
    let refused = |row: &&crate::support::AuditRow| row.how.as_deref() == Some("unsolicited");
    hub.audit_reaches(|rows| rows.iter().filter(refused).count() == 24).await;
}

#[tokio::test]
async fn a_retry_without_an_answer_is_asked_again() {
    let hub = Hub::start().await;
    let client = hub.modern_asked(&hub.key);
    let params = json!({ "name": "run_command", "arguments": touch(&hub, "x") });
    let asked = client.send("tools/call", params.clone()).await.result().clone();
    let mut empty = retried(&params, &asked, &Value::Null);
    empty["inputResponses"] = json!({ "other": {} });
    let again = client.send("tools/call", empty).await.result().clone();
    assert_eq!(again["resultType"], "input_required", "{again}");
    assert_ne!(again["requestState"], asked["requestState"]);
    // Whoever brings the answer need not say again that they can be asked.
    let unable = hub.modern(&hub.key);
    let done = unable.send("tools/call", retried(&params, &again, &decided("once"))).await.result().clone();
    assert_eq!((&done["isError"], &done["resultType"]), (&json!(false), &json!("complete")), "{done}");
}

#[tokio::test]
async fn a_grant_belongs_to_one_session_of_one_key_unless_the_key_is_leased() {
    let hub = Hub::start().key("shared", "session: lease").key("other", "").await;
    let (one, two) = (hub.legacy_asked(&hub.key).await, hub.legacy_asked(&hub.key).await);
    one.call_answering("approve_writes", json!({}), &decided("session")).await;
    let (_, asked) = two.call_answering("run_command", touch(&hub, "x"), &decided("no")).await;
    assert_eq!(asked.len(), 1, "another session of the same key");
    let (_, asked) = hub.modern_asked(&hub.key).call_answering("run_command", touch(&hub, "x"), &decided("no")).await;
    assert_eq!(asked.len(), 1, "its lease is another session too");

    let shared = secret("shared");
    let (one, two) = (hub.legacy_asked(&shared).await, hub.legacy_asked(&shared).await);
    one.call_answering("approve_writes", json!({}), &decided("session")).await;
    two.does("run_command", touch(&hub, "x")).await;
    hub.modern(&shared).does("run_command", touch(&hub, "x")).await;
    let (_, asked) =
        hub.modern_asked(&secret("other")).call_answering("run_command", touch(&hub, "x"), &decided("no")).await;
    assert_eq!(asked.len(), 1);
}

#[tokio::test]
async fn a_restart_forgets_grants_codes_and_questions() {
    let mut hub = Hub::start().await;
    let client = hub.modern_asked(&hub.key);
    client.call_answering("approve_writes", json!({}), &decided("session")).await;
    client.does("revoke_writes", json!({})).await;
    let params = json!({ "name": "run_command", "arguments": touch(&hub, "x") });
    let asked = client.send("tools/call", params.clone()).await.result().clone();
    let pending: Value = serde_json::from_str(&hub.nexus(&["pending", "--json"]).await.ok()).unwrap();
    client.call_answering("approve_writes", json!({}), &decided("session")).await;
    hub.stop().await;

    let hub = Hub::start().data(&hub.data).await;
    let client = hub.modern_asked(&hub.key);
    let late = client.send("tools/call", retried(&params, &asked, &decided("once"))).await.result().clone();
    assert_eq!(why(&late), "tampered", "{late}");
    let (_, asked) = client.call_answering("run_command", json!({ "cmd": "true" }), &decided("no")).await;
    assert_eq!(asked.len(), 1);
    let code = pending[0]["code"].as_str().unwrap();
    let ran = hub.nexus(&["approve", code]).await;
    assert!(ran.code == Some(1) && ran.stderr.contains("no call waits under the code"), "{ran:?}");
}

#[tokio::test]
async fn writes_of_one_session_at_once_put_one_question() {
    let hub = Hub::start().await;
    let client = hub.legacy_asked(&hub.key).await;
    let answer = decided("session");
    let calls = (0..4).map(|n| client.call_answering("run_command", touch(&hub, &n.to_string()), &answer));
    let ended = futures_util::future::join_all(calls).await;
    assert!(ended.iter().all(|(result, _)| result["isError"] == false), "{ended:?}");
    assert_eq!(ended.iter().map(|(_, asked)| asked.len()).sum::<usize>(), 1);
    assert!((0..4).all(|n| hub.path(&n.to_string()).exists()));
}

#[tokio::test]
async fn read_only_and_sandboxed_keys_are_not_asked() {
    let hub = Hub::start().key("guest", "level: sandboxed").key("reader", "read_only: true").await;
    for (key, expected) in [("guest", "level_too_low"), ("reader", "read_only")] {
        for client in hub.both_asked(&secret(key)).await {
            for tool in ["run_command", "approve_writes"] {
                let arguments = if tool == "run_command" { touch(&hub, "x") } else { json!({}) };
                let (result, asked) = client.call_answering(tool, arguments, &decided("session")).await;
                assert_eq!((why(&result), asked.len()), (expected, 0), "{result}");
            }
            client.does("revoke_writes", json!({})).await;
        }
    }
}
